"""A masked language model in use: fills in masks, scores, evaluates, gives vectors; and sentence vectors in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ensue.arguments import check_texts, check_type, check_whole
from ensue.data.corpus.cache import tokenize
from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.data.examples import Pair
from ensue.data.files import Location, one_location
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import EnsueError
from ensue.inspection.markup import share
from ensue.inspection.notebook import Answers, html, table_section
from ensue.inspection.page import Inspection
from ensue.metrics.language import MaskedScores
from ensue.metrics.scores import ItemRows, ScoredItems
from ensue.metrics.words import TextSimilarityScores
from ensue.models.masked_language_model import MaskedLanguageModel, MaskedNats
from ensue.runs.directory import RunDirectory
from ensue.stored import changed
from ensue.tasks.contract.description import (
    MaskedOutput,
    ModelDescription,
    TensorForm,
    TensorFunction,
    TokenInput,
    mask_of,
    sample_lengths,
)
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.contract.task import NamedScores
from ensue.tasks.contract.token_scores import Surprisals, TokenScore, token_scores
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts, framing_of
from ensue.tasks.masked_language_modeling.page import inspect_masked
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentencesTable
from ensue.tasks.masked_language_modeling.task import (
    MaskedBatch,
    masking_of,
    protocol_of,
    score,
    scored_examples,
    stream_of,
)
from ensue.tasks.masked_language_modeling.token_windows import mask_probabilities, pseudo_nats, token_vectors
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.texts.portable_reading import PortableReading, SubwordReading
from ensue.tasks.vectors.contextual import ContextualPipeline, checked_layer, pooled_words
from ensue.tasks.vectors.text_vectors import TextVectors, Vectors, highest_cosines, pooling_of, unit_vectors
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.wordpiece import MASK

MOST_FILLS = 10_000


class Fill(NamedTuple):
    """A token in place of a mask, and its probability."""

    token: str
    probability: float


class FilledText(NamedTuple):
    """A text whose masks are filled with their most probable tokens, and the most probable tokens of each mask."""

    text: str
    masks: tuple[tuple[Fill, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """The prediction as JSON values."""
        return {"prediction": self.text, "masks": [[fill._asdict() for fill in fills] for fills in self.masks]}

    def _rows(self) -> list[dict[str, Any]]:
        fills = (", ".join(f"{fill.token} {share(fill.probability)}" for fill in mask) for mask in self.masks)
        return [{"text": self.text, **{f"mask {number}": some for number, some in enumerate(fills, start=1)}}]

    def _repr_html_(self) -> str:
        return html(table_section(self._rows()))

    def __str__(self) -> str:
        return self.text


class MaskedVectors(ContextualPipeline, TextVectors):
    """The layers of a masked language model and its tokenizer: vectors of texts and words."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        coder: MaskedTokenizer,
        recipe: MaskedLanguageModelingRecipe,
        *,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model.eval())
        self.coder, self.recipe, self.run = coder, recipe, run

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        parts: MaskedLanguageModelParts = directory.parts
        recipe = directory.recipe
        assert isinstance(recipe, MaskedLanguageModelingRecipe)
        return cls(directory.model(device), parts.coder, recipe, run=directory.path)

    def embed(self, texts: Sequence[str], *, pooling: str | None = None, layer: int = -1) -> Vectors:
        """A vector for each text, (N, d): the mean, the largest values, the first ([CLS]) or the last ([SEP]) of the
        vectors of its tokens in a layer; [CLS] and [SEP] count as tokens. The recipe says which one, and whether it is
        divided by its length (`sentences`).

        Layer 0 is what enters the first block, 1 its output; negative numbers count from the last. A long text is read
        in windows that overlap. Raises EnsueError for a pooling or a layer that there is not.
        """
        check_texts(texts, "a list of texts")
        sentences = self.recipe.sentences
        pool = pooling_of(sentences.pooling if pooling is None else pooling)
        layers = [checked_layer(layer, self.num_layers)]
        vectors = np.zeros((len(texts), self.d_layers), np.float32)

        def done(number: int, found: Vectors) -> None:
            vectors[number] = pool(found[0])

        ids = [self.coder.encode(text) for text in texts]
        token_vectors(self.model, self.coder, ids, layers=layers, done=done)
        if sentences.unit_length:
            return unit_vectors(vectors)
        return vectors

    @property
    def num_layers(self) -> int:
        """The number of layers, L: the embeddings and the blocks."""
        return int(self.model.num_layers) + 1

    @property
    def d_layers(self) -> int:
        return int(self.model.layers.d_out)

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """As `ContextualPipeline`. Layer 0 enters the first block; a long sentence is read in windows that overlap."""
        pool = pooling_of(pooling)
        split = [self.framing.split(words) for words in sentences]
        words: dict[int, Vectors] = {}

        def done(number: int, found: Vectors) -> None:
            words[number] = pooled_words(found[:, 1:-1], split[number].counts, pool)

        layers = range(self.num_layers)
        token_vectors(self.model, self.coder, [one.ids for one in split], layers=layers, done=done)
        return [words[number] for number in range(len(sentences))]

    @property
    def framing(self) -> Framing:
        """How words are read."""
        return framing_of(self.coder, self.model.context)

    def portable_reading(self, pooling: str) -> PortableReading:
        def layers(model: MaskedLanguageModel, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
            return model.layers_of(ids, mask)

        size = self.coder.vocabulary_size
        return SubwordReading(layers=layers, framing=self.framing, vocabulary_size=size, pooling=pooling)

    def describe(self) -> ModelDescription:
        return describe(self.model, self.coder, self.recipe.sentences)

    def __repr__(self) -> str:
        tokens = f"{self.coder.tokenizer.kind} ({self.coder.vocabulary_size:,})"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


class SentenceVectorsPipeline(MaskedVectors):
    """Vectors of texts that were learned from pairs."""

    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> TextSimilarityScores:
        """How the cosines of pairs of texts agree with the similarities that people gave them (`text_similarity`)."""
        return self.text_similarity(location, encoding=encoding)

    def partners_found(self, pairs: Sequence[Pair]) -> NamedScores:
        """The share of the first texts whose nearest text, among the distinct second ones, is their own."""
        targets = [pair.targets[0] for pair in pairs]
        partners = list(dict.fromkeys(targets))
        firsts = self.embed([" ".join(pair.sources) for pair in pairs])
        found = highest_cosines(self.embed(partners), firsts, 1)[1][:, 0]
        return NamedScores(accuracy=float(np.mean([partners[n] == own for n, own in zip(found, targets, strict=True)])))


class MaskedLanguagePipeline(MaskedVectors, ScoringPipeline, Predictor):
    """A masked language model and its tokenizer: fills in masks, scores, evaluates, gives vectors."""

    n_best = 5

    def with_search(self, *, n_best: int) -> Self:
        """This model with so many tokens for each mask."""
        check_whole("n_best", n_best, 1, MOST_FILLS)
        return changed(self, n_best=n_best)

    def predict(self, texts: Sequence[str]) -> list[FilledText]:
        """Fills `[MASK]` in texts. Raises EnsueError for a text without it, or longer than the model reads."""
        self._check_head("filling in")
        check_texts(texts, "a list of texts")
        masked = [self.coder.encode_masked(text) for text in texts]
        most = self.model.context - 2
        for text, (ids, parts) in zip(texts, masked, strict=True):
            if len(parts) < 2:
                raise EnsueError(f'no {MASK} to fill in; found "{text:.40}"')
            if len(ids) > most:
                raise EnsueError(
                    f"a text of {len(ids):,} tokens; this model reads up to {most:,} (encoder.context "
                    f"{self.model.context:,} without [CLS] and [SEP]): expected a shorter one"
                )
        found = mask_probabilities(self.model, self.coder, [ids for ids, _ in masked])
        return Answers(self._filled(parts, shares) for (_, parts), shares in zip(masked, found, strict=True))

    def predict_json(self, texts: Sequence[str]) -> list[Any]:
        return [{"text": text, **found.as_json()} for text, found in zip(texts, self.predict(texts), strict=True)]

    def _filled(self, parts: Sequence[str], probabilities: torch.Tensor) -> FilledText:
        best, ids = probabilities.topk(min(self.n_best, len(self.coder.text_ids)), dim=1)
        masks = tuple(
            tuple(Fill(self.coder.symbol(id), share) for id, share in zip(some, shares, strict=True))
            for some, shares in zip(ids.tolist(), best.tolist(), strict=True)
        )
        return FilledText(self.coder.filled(parts, ids[:, 0].tolist()), masks)

    def line_of(self, text: str, answer: FilledText) -> str:
        return answer.text

    def inspect(self, text: str) -> Inspection:
        """Look into the model with a text, in which `[MASK]` may stand: what it expects at each token that is
        hidden alone, and its attention.

        The numbers of a long text are those of its first tokens. Raises EnsueError for a text without tokens.
        """
        self._check_head("a look inside")
        return inspect_masked(self.model, self.coder, text, self.facts(self.recipe.describe()))

    def score(self, text: str) -> Surprisals:
        """The surprisal of each token of `text`, given all others (Salazar et al. 2020)."""
        self._check_head("a score")
        check_type("the text", text, str, "a string")
        ids = self.coder.encode(text)
        (nats,) = pseudo_nats(self.model, self.coder, [ids])
        return Surprisals(token_scores(self.coder.tokenizer, text, ids.tolist(), nats.tolist()))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each token of each line of a text in pieces. Each line is read by itself."""
        for _, line in Lines(chunks, "the text"):
            yield from self.score(line)

    def evaluate(
        self, location: Location, *, encoding: str = "utf-8", progress: Callable[[int], None] | None = None
    ) -> MaskedScores:
        """The scores on a file, a folder or a glob, with masks that are the same for every model."""
        return self._scored(location, encoding, progress=progress)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        rows = ItemRows()

        def collect(batch: MaskedBatch, found: MaskedNats) -> None:
            hidden = (batch.targets != NOT_HIDDEN).cpu()
            row_of = hidden.nonzero()[:, 0].numpy()
            nats, right = (
                np.bincount(row_of, part.double().cpu().numpy(), batch.rows) for part in (found.nats, found.is_best)
            )
            for row in np.stack((nats, hidden.sum(1).numpy(), right), 1):
                rows.append(row)

        self._scored(location, encoding, collect=collect)
        return MaskedScores.items(rows, "blocks")

    def _scored(self, location: Location, encoding: str, **told: Any) -> MaskedScores:
        self._check_head("this score")
        location = one_location(location, "the text")
        tokens = tokenize(TextSource(location, encoding=encoding), stream_of(self.recipe, self.coder.tokenizer))
        examples = scored_examples(self.recipe, tokens, self.coder, location)
        masking = masking_of(self.recipe, self.coder)
        return score(self.model, examples, masking, tokens=len(tokens), unknown=tokens.unknown, **told)

    def protocol(self, scores: MaskedScores) -> str:
        return protocol_of(self.recipe)

    def total_nats(self, texts: Sequence[str]) -> ScoredTexts:
        ids = [self.coder.encode(text) for text in texts]
        return ScoredTexts(ids, np.array([nats.sum() for nats in pseudo_nats(self.model, self.coder, ids)]))

    def check_scores(self) -> None:
        self._check_head("a score")

    def _check_head(self, what: str) -> None:
        if self.model.head is None:
            raise EnsueError(
                f"{self.run}: the model has no head for masks, which {what} needs; embed gives its vectors"
            )


def describe(model: MaskedLanguageModel, coder: MaskedTokenizer, sentences: SentencesTable) -> ModelDescription:
    """Return a description with one function of texts between `[CLS]` and `[SEP]`."""

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        shape = (batch, min(length, model.context))
        return {"ids": torch.randint(model.vocabulary_size, shape), "lengths": sample_lengths(*shape)}

    inputs = {"ids": TensorForm(("batch", "time"), torch.int64), "lengths": TensorForm(("batch",), torch.int64)}
    settings = {
        "context": model.context,
        "begin": coder.begin_id,
        "end": coder.separator_id,
        "mask": coder.mask_id,
        "before": coder.tokenizer.before,
        "joins_blanks": coder.tokenizer.joins_blanks,
        "inside": coder.tokenizer.inside,
        "fills": model.head is not None,
        "forbidden": [coder.padding_id, *coder.special_ids],
        "begins_word": coder.begins_word.tolist(),
        "pooling": sentences.pooling,
        "unit_length": sentences.unit_length,
        "symbols": [coder.symbol(id) for id in range(coder.vocabulary_size)],
    }
    read = TensorFunction("model", _read, inputs, sample)
    return ModelDescription(
        TokenInput(coder.tokenizer), MaskedOutput(), model, (read,), model, ("masked", "subwords"), settings,
        {"tokenizer.json": coder.tokenizer},
    )  # fmt: skip


def _read(model: Any, ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    masked: MaskedLanguageModel = model
    mask = mask_of(ids, lengths)
    h = masked(ids, mask)
    found = {"vectors": h} if masked.head is None else {"vectors": h, "logits": masked.head(h)}
    return {name: tensor.masked_fill(~mask.unsqueeze(-1), 0.0) for name, tensor in found.items()}
