"""The pipeline of language models."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.cache import tokenize
from ensue.data.files import Data
from ensue.data.sources import TextSource
from ensue.decode.generation import generate_ids, search_ids
from ensue.decode.sampling import Sampling, SamplingOptions
from ensue.decode.search import BeamSearch
from ensue.errors import check_field_names, check_integer, check_type
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.scores import ItemRows, LanguageScores, ScoredItems
from ensue.models.adaptation import Adaptation, AdaptationOptions
from ensue.models.adaptive_model import AdaptiveModel
from ensue.models.language_model import LanguageModel
from ensue.models.modules import evaluating
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract import description
from ensue.tasks.contract.token_scores import PieceNats, Surprisals, TokenScore, split_pieces, token_scores
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.tasks.language_modeling.page import inspect_text
from ensue.tasks.texts import scoring
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.vectors.contextual import LayeredPipeline, LayeredReader
from ensue.text.boundaries import cut_at_boundaries
from ensue.text.tokenizer import Decoder, Tokenizer, WordTokenizer

MAX_PIECE_CHARACTERS = 1 << 20
"""A streamed text without token boundaries is cut after this number of characters, so that memory is bounded."""
MAX_SAMPLES, MAX_PARTS = 10_000, 1_000_000


class Continuation(NamedTuple):
    """A continuation of a prompt, and its surprisal in nats."""

    text: str
    nats: float


class LanguagePipeline(LayeredPipeline, ScoringPipeline):
    """A trained language model: generation, surprisal, scores, vectors of words. `encoder` describes the layers."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, encoder: str = "", run: str | Path | None = None
    ) -> None:
        super().__init__(model.eval())
        self.tokenizer, self.encoder, self.run = tokenizer, encoder, run
        self.reader: LanguageModel = self.model
        """The model that generates and scores: `model`, or a wrapper of `model` that adapts to each text."""

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        parts: LanguageModelParts = directory.parts
        return cls(directory.model(device), parts.tokenizer, encoder=directory.recipe.describe(), run=directory.path)

    def with_adaptation(self, **adaptation: Unpack[AdaptationOptions]) -> Self:
        """Return a copy that adapts to each text when it generates, scores and evaluates. Vectors do not adapt.
        `adaptation` are the arguments of `Adaptation`, such as `cache=500` (a neural cache of 500 tokens) and
        `dynamic=0.5` (dynamic evaluation with the learning rate 0.5). Raise EnsueError for values out of range, and for
        a Transformer, which reads windows.
        """
        check_field_names("an adaptation", adaptation, Adaptation)
        settings, adapted = Adaptation(**adaptation), copy(self)
        adapts = settings.has_cache or settings.dynamic
        adapted.reader = cast("LanguageModel", AdaptiveModel(self.model, settings)) if adapts else self.model
        return adapted

    @property
    def layered_reader(self) -> LayeredReader:
        model, framing = self.model, Framing.with_separate_words(
            self.tokenizer, begin=(self.tokenizer.start_id,), max_positions=self.model.context or 0,
            is_causal=self.model.layers.is_causal,
        )  # fmt: skip
        return LayeredReader(model.features, model.layers, framing)

    def generate(
        self, prompt: str = "", *, max_tokens: int = 200, seed: int | None = None, **sampling: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """Yield a continuation of `prompt` in pieces of text, each of one or more tokens.

        Args:
            prompt: The text before the continuation.
            max_tokens: The number of tokens.
            seed: The seed of the random numbers; None: a different seed in each call.
            sampling: The arguments of `Sampling`, such as `temperature=0.7` and `top_p=0.9`.

        Raises:
            EnsueError: A value is out of range.
            ContextError: The prompt is longer than the context of a Transformer.
        """
        return (pieces[0] for pieces in self._generate_pieces(prompt, 1, max_tokens, sampling, seed) if pieces[0])

    def samples(
        self, prompt: str = "", num_samples: int = 1, *, max_tokens: int = 200, seed: int | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> list[str]:  # fmt: skip
        """Return `num_samples` continuations of a prompt, which are generated in a batch (see `generate`)."""
        check_integer("num_samples", num_samples, 1, MAX_SAMPLES)
        generated = self._generate_pieces(prompt, num_samples, max_tokens, sampling, seed)
        return ["".join(pieces) for pieces in zip(*generated, strict=True)] or [""] * num_samples

    def _generate_pieces(
        self, prompt: str, rows: int, max_tokens: int, sampling: SamplingOptions, seed: int | None
    ) -> Iterator[list[str]]:
        """Yield the next text of each row after each token, and at the end the text that remains in the decoders."""
        check_field_names("sampling", sampling, Sampling)
        check_type("the prompt", prompt, str, "a string")
        ids = self.tokenizer.encode(prompt)
        columns = generate_ids(
            self.reader, [ids] * rows, max_tokens=max_tokens, start_id=self.tokenizer.start_id,
            sampling=Sampling(**sampling), seed=seed,
        )  # fmt: skip
        return self._decode_pieces(columns, ids.tolist(), rows)

    def _decode_pieces(self, columns: Iterator[torch.Tensor], prompt: list[int], rows: int) -> Iterator[list[str]]:
        decoders = [self.decoder_after(prompt) for _ in range(rows)]
        for column in columns:
            yield [decoder.feed(id) for decoder, id in zip(decoders, column.tolist(), strict=True)]
        yield [decoder.flush() for decoder in decoders]

    def decoder_after(self, prompt: list[int]) -> Decoder:
        """Return a decoder of the ids that follow `prompt`."""
        decoder = self.tokenizer.decoder()
        for id in prompt[-1:]:  # whether a space comes before a word depends on the previous word
            decoder.feed(id)
        return decoder

    def search(
        self, prompt: str = "", *, beams: int = 5, n_best: int = 1, max_tokens: int = 200, no_repeat_ngram: int = 0
    ) -> list[Continuation]:
        """Return the most probable continuations of a prompt by beam search, the best first.

        Args:
            prompt: The text before the continuations.
            beams: The width of the beam.
            n_best: The number of continuations.
            max_tokens: The number of tokens of each continuation.
            no_repeat_ngram: The n for which an n-gram must not occur twice; 0: no constraint.

        Raises:
            EnsueError: A value is out of range.
            ContextError: The prompt is longer than the context of a Transformer.
        """
        check_type("the prompt", prompt, str, "a string")
        search = BeamSearch(beams, n_best, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram)
        ids = self.tokenizer.encode(prompt)
        (hypotheses,) = search_ids(self.reader, [ids], search=search, start_id=self.tokenizer.start_id)
        decoders = [self.decoder_after(ids.tolist()) for _ in hypotheses]
        return Answers(
            Continuation("".join(map(decoder.feed, best.ids)) + decoder.flush(), -best.log_probability)
            for decoder, best in zip(decoders, hypotheses, strict=True)
        )

    def score(self, text: str) -> Surprisals:
        """Return the surprisal of each token of `text`, given all tokens before it."""
        check_type("the text", text, str, "a string")
        return Surprisals(self.score_stream([text]))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """Yield the surprisal of each token of a text, which is read in chunks. Memory does not grow with the text."""
        scorer = scoring.TextScorer(self.reader, start_id=self.tokenizer.start_id)
        for piece in cut_at_boundaries(chunks, max_length=MAX_PIECE_CHARACTERS):
            ids = self.tokenizer.encode(piece)
            yield from token_scores(self.tokenizer, piece, ids.tolist(), self._score_ids(scorer, ids))

    def _score_ids(self, scorer: scoring.TextScorer, ids: NDArray[np.uint32]) -> Iterator[float]:
        for start in range(0, len(ids), scoring.MAX_CALL_TOKENS):
            with evaluating(self.reader):
                nats = scorer.feed(ids[start : start + scoring.MAX_CALL_TOKENS])
            yield from nats.tolist()

    def inspect(self, text: str, *, at: int | None = None, token: str | None = None, off: str = "") -> Inspection:
        """Return a page about a text in the model: its predictions, units and attention.

        Args:
            text: The text; the page has the first tokens of a long text.
            at: The number of a position, from 1, whose token is explained; 0: the position after the text.
            token: The token that is explained; None: the token of the text at the position.
            off: Units that are switched off to see the effect, such as
                "layer 1, cell: 3, 7-9; layer 2, hidden: 1 = mean" (`SwitchedOff`).

        Raises:
            EnsueError: The text has no tokens, `at` is out of range, `token` is not one token, or a unit is unknown.
        """
        facts = self.facts(self.encoder)
        return inspect_text(self.model, self.tokenizer, text, facts=facts, at=at, token=token, off=off)

    def describe(self) -> description.ModelDescription:
        """Return a description with one function of ids and state. The initial state is zeros."""
        model, tokenizer = self.model, self.tokenizer

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            ids = torch.randint(model.vocabulary_size, (batch, length + 2))
            _, state = model(ids[:, :2])
            return {"ids": ids[:, 2:], **description.state_tensors(state)}

        states = description.state_specs(model.init_state(2))
        inputs = {"ids": description.TensorSpec(("batch", "time"), torch.int64), **states}
        settings = {
            "start": tokenizer.start_id, "unknown": tokenizer.unknown_id, "context": model.context,
            "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
            "symbols": [tokenizer.symbol(id) for id in range(tokenizer.vocabulary_size)],
        }  # fmt: skip
        read = description.TensorFunction("model", _run_model, inputs, sample)
        output = description.TokenOutput(description.settings_of(Sampling()))
        return description.ModelDescription(
            description.TokenInput(tokenizer), output, model, (read,), model, ("language",), settings,
            {"tokenizer.json": tokenizer},
        )  # fmt: skip

    def evaluate(
        self, text: Data | TextSource, *, encoding: str = "utf-8", parts: int | None = None,
        progress: scoring.Progress | None = None,
    ) -> LanguageScores:  # fmt: skip
        """Return the scores on a file, a folder or a glob, by the protocol of `ensue.tasks.texts.scoring`. The text is
        cut into `parts` segments, which are read in a batch; 1: the text is read from beginning to end.
        """
        if parts is not None:
            check_integer("parts", parts, 1, MAX_PARTS)
        tokens = tokenize(text if isinstance(text, TextSource) else TextSource(text, encoding=encoding), self.tokenizer)
        return scoring.score_text(self.reader, tokens, start_id=self.tokenizer.start_id, parts=parts, progress=progress)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        """Return the scores of the pieces of a text (`token_scores.split_pieces`), for a significance test."""
        source = TextSource(location, encoding=encoding)
        tokens = tokenize(source, self.tokenizer)
        sizes = [(len(self.tokenizer.encode(piece)), len(piece)) for piece in split_pieces(source.chunks())]
        counts = np.array(sizes, np.int64).reshape(-1, 2)
        assert counts[:, 0].sum() == len(tokens), "a token across two pieces"
        nats = PieceNats(np.cumsum(counts[:, 0]))
        scoring.score_text(self.reader, tokens, start_id=self.tokenizer.start_id, collect=nats)
        note = f"{tokens.unknown:,} of {len(tokens):,} tokens are unknown, so the surprisal of the text is too low"
        rows = ItemRows(np.column_stack((nats.totals, counts)))
        return LanguageScores.scored_items(rows, "pieces", [note] if tokens.unknown else [])

    def protocol(self, scores: LanguageScores, *, parts: int | None = None) -> str:
        adapts = self.reader.adapts
        parts = 1 if adapts else scoring.default_parts(scores.tokens) if parts is None else parts
        return scoring.describe_protocol(self.model, parts) + (", adapting to the text" if adapts else "")

    def score_texts(self, texts: Sequence[str]) -> ScoredTexts:
        ids = [self.tokenizer.encode(text).astype(np.int64) for text in texts]
        return ScoredTexts(ids, scoring.total_nats(self.reader, ids, start_id=self.tokenizer.start_id))

    def __repr__(self) -> str:
        encoder = [self.encoder] if self.encoder else []
        tokens = f"{self.tokenizer.kind} ({self.tokenizer.vocabulary_size:,})"
        return self._format_repr(*encoder, f"{self.num_parameters:,} parameters", tokens)


def _run_model(model: LanguageModel, ids: Tensor, **state: Any) -> dict[str, Tensor]:
    """Return the logits of the next tokens, and the leaves of the state after the last token."""
    logits, after = model(ids, description.state_from(model.init_state(1), state))
    return {"logits": logits, **description.state_tensors(after, "next")}
