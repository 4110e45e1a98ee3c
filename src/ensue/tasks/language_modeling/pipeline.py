"""A language model in use: generates, scores and evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_type, check_whole
from ensue.data.corpus.cache import tokenize
from ensue.data.files import Location, one_location
from ensue.data.sources import TextSource
from ensue.decode.generation import generate_ids, search_ids
from ensue.decode.sampling import Sampling, SamplingOptions
from ensue.decode.search import BeamSearch
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.language import LanguageScores
from ensue.metrics.scores import ItemRows, ScoredItems
from ensue.models.adaptation import Adaptation, AdaptationOptions
from ensue.models.adaptive_model import AdaptiveModel
from ensue.models.language_model import LanguageModel
from ensue.models.modules import evaluating
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import (
    ModelDescription,
    TensorForm,
    TensorFunction,
    TokenInput,
    TokenOutput,
    settings_of,
    state_forms,
    state_from,
    state_tensors,
)
from ensue.tasks.contract.token_scores import NatsOfParts, Surprisals, TokenScore, counted, token_scores
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.tasks.language_modeling.page import inspect_text
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.texts.scoring import (
    CALL_TOKENS,
    Progress,
    TextScorer,
    default_parts,
    describe_protocol,
    read,
    total_nats,
)
from ensue.tasks.vectors.contextual import LayeredPipeline, LayeredReader
from ensue.text.boundaries import cut_at_boundaries
from ensue.text.tokenizer import Decoder, Tokenizer
from ensue.text.words import WordTokenizer

LONGEST_WITHOUT_BOUNDARY = 1 << 20
"""The most characters without a blank of a streamed text. It is cut there, so that memory stays constant."""

MOST_SAMPLES, MOST_PARTS = 10_000, 1_000_000


class Continuation(NamedTuple):
    """A text that goes on from a prompt, and its surprisal in nats."""

    text: str
    nats: float


class LanguagePipeline(LayeredPipeline, ScoringPipeline):
    """A language model and its tokenizer: generates, scores, evaluates, gives vectors of words.

    `encoder` (a description of the layers) and `run` are for its `repr`.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, encoder: str = "", run: str | Path | None = None
    ) -> None:
        super().__init__(model.eval())
        self.tokenizer, self.encoder, self.run = tokenizer, encoder, run
        self.reader: LanguageModel = self.model
        """The model that writes and scores; another one than `model` if it adapts to what it reads."""

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        parts: LanguageModelParts = directory.parts
        encoder = directory.recipe.describe()
        return cls(directory.model(device), parts.tokenizer, encoder=encoder, run=directory.path)

    def with_adaptation(self, **adaptation: Unpack[AdaptationOptions]) -> Self:
        """This model, which adapts to what it reads when it generates, scores and evaluates, each text by itself.

        `adaptation` are the arguments of `Adaptation`, such as `cache=500` (a neural cache of so many tokens) and
        `dynamic=0.5` (dynamic evaluation at this learning rate). Vectors and `inspect` are those of the model as it was
        trained. Raises EnsueError for values out of range, and for a model that reads windows of a text.
        """
        asked, adapted = Adaptation(**adaptation), copy(self)
        adapted.reader = self.model if asked.is_none else cast("LanguageModel", AdaptiveModel(self.model, asked))
        return adapted

    @property
    def layered_reader(self) -> LayeredReader:
        model, begin = self.model, (self.tokenizer.start_id,)
        framing = Framing.apart(self.tokenizer, begin=begin, most=model.context or 0, is_causal=model.layers.is_causal)
        return LayeredReader(model.features, model.layers, framing)

    def generate(
        self,
        prompt: str = "",
        *,
        max_tokens: int = 200,
        seed: int | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """The text that the model writes after `prompt`, in pieces. A piece is final and may hold several tokens.

        Without a seed the text differs each time. `sampling` are the arguments of `Sampling`, such as
        `temperature=0.7` and `top_p=0.9`. Raises EnsueError for values out of
        range, and ContextError for a prompt that is longer than a Transformer's context.
        """
        generated = self._generated(prompt, 1, max_tokens, Sampling(**sampling), seed)
        return (pieces[0] for pieces in generated if pieces[0])

    def samples(
        self,
        prompt: str = "",
        num_samples: int = 1,
        *,
        max_tokens: int = 200,
        seed: int | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> list[str]:
        """Several continuations of one prompt, generated together; see `generate`."""
        check_whole("num_samples", num_samples, 1, MOST_SAMPLES)
        generated = self._generated(prompt, num_samples, max_tokens, Sampling(**sampling), seed)
        return ["".join(pieces) for pieces in zip(*generated, strict=True)] or [""] * num_samples

    def _generated(
        self, prompt: str, rows: int, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Iterator[list[str]]:
        """For each token the next piece of text of each row, and at the end the rest that the decoders hold."""
        check_type("the prompt", prompt, str, "a string")
        ids = self.tokenizer.encode(prompt)
        columns = generate_ids(
            self.reader,
            [ids] * rows,
            max_tokens=max_tokens,
            start_id=self.tokenizer.start_id,
            sampling=sampling,
            seed=seed,
        )
        return self._decoded(columns, ids.tolist(), rows)

    def _decoded(self, columns: Iterator[torch.Tensor], prompt: list[int], rows: int) -> Iterator[list[str]]:
        decoders = [self.decoder_after(prompt) for _ in range(rows)]
        for column in columns:
            yield [decoder.feed(id) for decoder, id in zip(decoders, column.tolist(), strict=True)]
        yield [decoder.flush() for decoder in decoders]

    def decoder_after(self, prompt: list[int]) -> Decoder:
        """The decoder that turns the ids that follow `prompt` into text, one by one."""
        decoder = self.tokenizer.decoder()
        for id in prompt[-1:]:  # the blank between two words depends on the word before
            decoder.feed(id)
        return decoder

    def search(
        self,
        prompt: str = "",
        *,
        beams: int = 5,
        n_best: int = 1,
        max_tokens: int = 200,
        no_repeat_ngram: int = 0,
    ) -> list[Continuation]:
        """The most probable continuations of `max_tokens` tokens that a beam search finds, the best first.

        Nothing is drawn. No n-gram of `no_repeat_ngram` tokens occurs twice in what is written; 0 lets all repeat.
        Raises EnsueError for values out of range, and ContextError for a prompt that is longer than a Transformer's
        context.
        """
        check_type("the prompt", prompt, str, "a string")
        search = BeamSearch(beams, n_best, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram)
        ids = self.tokenizer.encode(prompt)
        (found,) = search_ids(self.reader, [ids], search=search, start_id=self.tokenizer.start_id)
        written = (self._continued(ids.tolist(), one.ids) for one in found)
        return Answers(Continuation(text, -one.log_probability) for text, one in zip(written, found, strict=True))

    def _continued(self, prompt: list[int], ids: tuple[int, ...]) -> str:
        decoder = self.decoder_after(prompt)
        return "".join([decoder.feed(id) for id in ids]) + decoder.flush()

    def score(self, text: str) -> Surprisals:
        """The surprisal of each token of `text`, read from its beginning."""
        check_type("the text", text, str, "a string")
        return Surprisals(self.score_stream([text]))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each token of a text in pieces, of any length, in constant memory."""
        reading = TextScorer(self.reader, start_id=self.tokenizer.start_id)
        for piece in cut_at_boundaries(chunks, longest=LONGEST_WITHOUT_BOUNDARY):
            ids = self.tokenizer.encode(piece)
            yield from token_scores(self.tokenizer, piece, ids.tolist(), self._nats(reading, ids))

    def _nats(self, reading: TextScorer, ids: NDArray[np.uint32]) -> Iterator[float]:
        for start in range(0, len(ids), CALL_TOKENS):
            with evaluating(self.reader):
                nats = reading.feed(ids[start : start + CALL_TOKENS])
            yield from nats.tolist()

    def inspect(self, text: str, *, at: int | None = None, token: str | None = None, off: str = "") -> Inspection:
        """Look into the model while it reads a text: what it expected, its units, its attention.

        The numbers of a long text are those of its first tokens. With `at` it says why token number `at` was expected,
        from 1 on (0: the one behind the text), or `token` in its place. It says what changes if the units `off` are
        switched off, such as "layer 1, cell: 3, 7-9; layer 2, hidden: 1 = mean" (`SwitchedOff`). Raises EnsueError for
        a text without tokens, a number out of range, a `token` that is not one token, and units that there are not.
        """
        facts = self.facts(self.encoder)
        return inspect_text(self.model, self.tokenizer, text, facts=facts, at=at, token=token, off=off)

    def describe(self) -> ModelDescription:
        """Return a description with one function of `ids` and the leaves of the state, zeros before the first token."""
        model, tokenizer = self.model, self.tokenizer

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            ids = torch.randint(model.vocabulary_size, (batch, length + 2))
            _, state = model(ids[:, :2])
            return {"ids": ids[:, 2:], **state_tensors(state)}

        forms = {"ids": TensorForm(("batch", "time"), torch.int64), **state_forms(model.init_state(2))}
        settings = {
            "start": tokenizer.start_id,
            "unknown": tokenizer.unknown_id,
            "context": model.context,
            "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
            "symbols": [tokenizer.symbol(id) for id in range(tokenizer.vocabulary_size)],
        }
        read = TensorFunction("model", _read, forms, sample)
        output = TokenOutput(settings_of(Sampling()))
        return ModelDescription(
            TokenInput(tokenizer), output, model, (read,), model, ("language",), settings, {"tokenizer.json": tokenizer}
        )

    def evaluate(
        self,
        text: Location | TextSource,
        *,
        encoding: str = "utf-8",
        parts: int | None = None,
        progress: Progress | None = None,
    ) -> LanguageScores:
        """The scores of a file, a folder or a glob by the protocol of `ensue.tasks.texts.scoring`.

        The text is cut into `parts` that are read together; 1 reads it from beginning to end.
        """
        if not isinstance(text, TextSource):
            text = one_location(text, "the text")
        if parts is not None:
            check_whole("parts", parts, 1, MOST_PARTS)
        source = text if isinstance(text, TextSource) else TextSource(text, encoding=encoding)
        tokens = tokenize(source, self.tokenizer)
        return read(self.reader, tokens, start_id=self.tokenizer.start_id, parts=parts, progress=progress)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        """The bits per character, whose items are pieces of the text."""
        location = one_location(location, "the text")
        source = TextSource(location, encoding=encoding)
        tokens, counts = tokenize(source, self.tokenizer), counted(source.chunks(), self.tokenizer.encode)
        assert counts[:, 0].sum() == len(tokens), "a token across two pieces"
        nats = NatsOfParts(np.cumsum(counts[:, 0]))
        read(self.reader, tokens, start_id=self.tokenizer.start_id, collect=nats)
        few = f"{tokens.unknown:,} of {len(tokens):,} tokens are unknown, so its surprisal is too low"
        rows = ItemRows(np.column_stack((nats.totals, counts)))
        return LanguageScores.items(rows, "pieces", [few] if tokens.unknown else [])

    def protocol(self, scores: LanguageScores, *, parts: int | None = None) -> str:
        parts = 1 if self.reader.reads_alone else default_parts(scores.tokens) if parts is None else parts
        return describe_protocol(self.model, parts) + (", adapting to what is read" if self.reader.reads_alone else "")

    def total_nats(self, texts: Sequence[str]) -> ScoredTexts:
        ids = [self.tokenizer.encode(text).astype(np.int64) for text in texts]
        return ScoredTexts(ids, total_nats(self.reader, ids, start_id=self.tokenizer.start_id))

    def __repr__(self) -> str:
        encoder = [self.encoder] if self.encoder else []
        tokens = f"{self.tokenizer.kind} ({self.tokenizer.vocabulary_size:,})"
        return self._described(*encoder, f"{self.num_parameters:,} parameters", tokens)


def _read(model: LanguageModel, ids: Tensor, **state: Any) -> dict[str, Tensor]:
    logits, after = model(ids, state_from(model.init_state(1), state))
    return {"logits": logits, **state_tensors(after, "next")}
