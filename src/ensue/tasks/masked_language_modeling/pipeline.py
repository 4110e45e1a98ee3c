"""The pipelines of masked language models and of sentence vectors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from ensue.data.corpus.cache import tokenize
from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.data.examples import Pair
from ensue.data.files import Data, as_location
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import EnsueError, check_integer, check_text_list, check_type
from ensue.inspection.notebook import Answers, html, table_section
from ensue.inspection.page import Inspection, format_probability
from ensue.metrics.scores import ItemRows, MaskedScores, ScoredItems, TextSimilarityScores
from ensue.models.masked_language_model import MaskedLanguageModel, MaskedNats
from ensue.runs.directory import RunDirectory
from ensue.stored import copy_with
from ensue.tasks.contract import description
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.contract.task import NamedScores
from ensue.tasks.contract.token_scores import Surprisals, TokenScore, token_scores
from ensue.tasks.masked_language_modeling import task as masked
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts, framing_of
from ensue.tasks.masked_language_modeling.page import inspect_masked
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from ensue.tasks.masked_language_modeling.token_windows import mask_probabilities, pseudo_nats, token_vectors
from ensue.tasks.texts.export_encoder import ExportEncoder, SubwordExportEncoder
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.vectors import contextual
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.wordpiece import MASK

MAX_FILLS = 10_000


class Fill(NamedTuple):
    """A token in place of a mask, and its probability."""

    token: str
    probability: float


class FilledText(NamedTuple):
    """The prediction for a text with masks."""

    text: str
    """The text with the most probable token in place of each mask."""
    masks: tuple[tuple[Fill, ...], ...]
    """For each mask, the `n_best` most probable tokens."""

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        return {"prediction": self.text, "masks": [[fill._asdict() for fill in fills] for fills in self.masks]}

    def _rows(self) -> list[dict[str, Any]]:
        masks = (", ".join(f"{token} {format_probability(p)}" for token, p in fills) for fills in self.masks)
        return [{"text": self.text, **{f"mask {number}": fills for number, fills in enumerate(masks, start=1)}}]

    def _repr_html_(self) -> str:
        return html(table_section(self._rows()))

    def __str__(self) -> str:
        return self.text


class MaskedVectors(contextual.ContextualPipeline, contextual.TextVectors):
    """Vectors of texts and words from the layers of a masked language model."""

    def __init__(
        self, model: MaskedLanguageModel, coder: MaskedTokenizer, recipe: MaskedLanguageModelingRecipe, *,
        run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model.eval())
        self.coder, self.recipe, self.run = coder, recipe, run

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        parts: MaskedLanguageModelParts = directory.parts
        recipe = directory.recipe
        assert isinstance(recipe, MaskedLanguageModelingRecipe)
        return cls(directory.model(device), parts.coder, recipe, run=directory.path)

    def embed(self, texts: Sequence[str], *, pooling: str | None = None, layer: int = -1) -> contextual.Vectors:
        """Return a vector for each text. A long text is read in windows that overlap.

        Args:
            texts: N texts.
            pooling: The pooling of the vectors of tokens, including [CLS] and [SEP]: "mean", "max", "first" ([CLS]) or
                "last" ([SEP]); None: the pooling of the recipe.
            layer: The index of the layer; 0: the input of the first block; 1: its output; negative indices count from
                the last layer.

        Returns:
            The vectors (N, d), of length 1 if the recipe has `sentences.unit_length`.

        Raises:
            EnsueError: The pooling or the layer is unknown.
        """
        texts = check_text_list(texts, "texts", are_lists=False)
        sentences = self.recipe.sentences
        pool = contextual.pooling_of(sentences.pooling if pooling is None else pooling)
        layer = contextual.resolve_layer(layer, self.num_layers)
        vectors = np.zeros((len(texts), self.d_layers), np.float32)

        def collect(index: int, layers: contextual.Vectors) -> None:
            vectors[index] = pool(layers[0])

        ids = [self.coder.encode(text) for text in texts]
        token_vectors(self.model, self.coder, ids, layers=[layer], collect=collect)
        return contextual.unit_vectors(vectors) if sentences.unit_length else vectors

    @property
    def num_layers(self) -> int:
        return int(self.model.num_layers) + 1

    @property
    def d_layers(self) -> int:
        return int(self.model.layers.d_out)

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[contextual.Vectors]:
        """Return the vectors (L, T, d) of words; layer 0 is the first block's input. Windows cover long sentences."""
        pool = contextual.pooling_of(pooling)
        split = [self.framing.split(words) for words in sentences]
        words: dict[int, contextual.Vectors] = {}

        def collect(index: int, layers: contextual.Vectors) -> None:
            words[index] = contextual.pool_words(layers[:, 1:-1], split[index].counts, pool)

        layers = range(self.num_layers)
        token_vectors(self.model, self.coder, [sentence.ids for sentence in split], layers=layers, collect=collect)
        return [words[index] for index in range(len(sentences))]

    @property
    def framing(self) -> Framing:
        """The framing of words."""
        return framing_of(self.coder, self.model.context)

    def export_encoder(self, pooling: str) -> ExportEncoder:
        def layers(model: MaskedLanguageModel, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
            return model.layers_of(ids, mask)

        size = self.coder.vocabulary_size
        return SubwordExportEncoder(layers=layers, framing=self.framing, vocabulary_size=size, pooling=pooling)

    def describe(self) -> description.ModelDescription:
        model, coder, sentences = self.model, self.coder, self.recipe.sentences

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            shape = (batch, min(length, model.context))
            return {"ids": torch.randint(model.vocabulary_size, shape), "lengths": description.sample_lengths(*shape)}

        sizes = {"ids": ("batch", "time"), "lengths": ("batch",)}
        inputs = {name: description.TensorSpec(sizes[name], torch.int64) for name in sizes}
        settings = {
            "context": model.context, "begin": coder.begin_id, "end": coder.separator_id, "mask": coder.mask_id,
            "before": coder.tokenizer.before, "joins_blanks": coder.tokenizer.joins_blanks,
            "inside": coder.tokenizer.inside, "fills": model.head is not None,
            "forbidden": [coder.padding_id, *coder.special_ids], "begins_word": coder.begins_word.tolist(),
            "pooling": sentences.pooling, "unit_length": sentences.unit_length,
            "symbols": [coder.symbol(id) for id in range(coder.vocabulary_size)],
        }  # fmt: skip
        read = description.TensorFunction("model", _run_model, inputs, sample)
        return description.ModelDescription(
            description.TokenInput(coder.tokenizer), description.MaskedOutput(), model, (read,), model,
            ("masked", "subwords"), settings, {"tokenizer.json": coder.tokenizer},
        )  # fmt: skip

    def __repr__(self) -> str:
        tokens = f"{self.coder.tokenizer.kind} ({self.coder.vocabulary_size:,})"
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


class SentenceVectorsPipeline(MaskedVectors):
    """Vectors of texts from a model that was trained on pairs."""

    def evaluate(self, location: Data, *, encoding: str = "utf-8") -> TextSimilarityScores:
        """Return the correlation of cosines of pairs of texts with judged similarities (`text_similarity`)."""
        return self.text_similarity(location, encoding=encoding)

    def partner_accuracy(self, pairs: Sequence[Pair]) -> NamedScores:
        """Return the share of pairs whose second text is the nearest to the first text among all second texts."""
        targets = [pair.targets[0] for pair in pairs]
        partners = list(dict.fromkeys(targets))
        firsts = self.embed([" ".join(pair.sources) for pair in pairs])
        nearest = contextual.highest_cosines(self.embed(partners), firsts, 1)[1][:, 0]
        is_right = [partners[n] == target for n, target in zip(nearest, targets, strict=True)]
        return NamedScores(accuracy=float(np.mean(is_right)))


class MaskedLanguagePipeline(MaskedVectors, ScoringPipeline, Predictor):
    """A trained masked language model: predictions for masks, surprisal, scores, vectors."""

    n_best = 5

    def with_search(self, *, n_best: int) -> Self:
        """Return a copy that predicts `n_best` tokens for each mask."""
        check_integer("n_best", n_best, 1, MAX_FILLS)
        return copy_with(self, n_best=n_best)

    def predict(self, texts: Sequence[str]) -> Answers[FilledText]:
        """Predict the token of each `[MASK]`. Raise EnsueError for texts without masks or longer than the context."""
        self._check_head("predict")
        texts = check_text_list(texts, "texts", are_lists=False)
        masked = [self.coder.encode_masked(text) for text in texts]
        max_tokens = self.model.context - 2
        for text, (ids, pieces) in zip(texts, masked, strict=True):
            if len(pieces) < 2:
                raise EnsueError(f'no {MASK} to fill in; found "{text:.40}"')
            if len(ids) > max_tokens:
                raise EnsueError(
                    f"a text of {len(ids):,} tokens; this model reads up to {max_tokens:,} (encoder.context "
                    f"{self.model.context:,} without [CLS] and [SEP]): expected a shorter text"
                )
        probabilities = mask_probabilities(self.model, self.coder, [ids for ids, _ in masked])
        return Answers(self._fill_masks(pieces, rows) for (_, pieces), rows in zip(masked, probabilities, strict=True))

    def predict_json(self, texts: Sequence[str]) -> list[Any]:
        return [{"text": text, **filled.as_json()} for text, filled in zip(texts, self.predict(texts), strict=True)]

    def _fill_masks(self, pieces: Sequence[str], probabilities: torch.Tensor) -> FilledText:
        best, ids = probabilities.topk(min(self.n_best, len(self.coder.text_ids)), dim=1)
        masks = tuple(
            tuple(Fill(self.coder.symbol(id), probability) for id, probability in zip(*row, strict=True))
            for row in zip(ids.tolist(), best.tolist(), strict=True)
        )
        return FilledText(self.coder.fill(pieces, ids[:, 0].tolist()), masks)

    def format_line(self, text: str, answer: FilledText) -> str:
        return answer.text

    def inspect(self, text: str) -> Inspection:
        """Return a page about a text, which may have `[MASK]`: predictions for each hidden token, and attention. The
        page has the first tokens of a long text. Raise EnsueError for a text without tokens.
        """
        self._check_head("inspect")
        return inspect_masked(self.model, self.coder, text, self.facts(self.recipe.describe()))

    def score(self, text: str) -> Surprisals:
        """Return the surprisal of each token of `text`, given all other tokens (Salazar et al. 2020)."""
        self._check_head("score")
        check_type("the text", text, str, "a string")
        ids = self.coder.encode(text)
        (nats,) = pseudo_nats(self.model, self.coder, [ids])
        return Surprisals(token_scores(self.coder.tokenizer, text, ids.tolist(), nats.tolist()))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """Yield the surprisal of each token of a text that is read in chunks. Lines are scored independently."""
        for _, line in Lines(chunks, "the text"):
            yield from self.score(line)

    def evaluate(
        self, location: Data, *, encoding: str = "utf-8", progress: Callable[[int], None] | None = None
    ) -> MaskedScores:
        """Return the scores on a file, a folder or a glob, with the same masks for every model."""
        return self._score_location(location, encoding, progress=progress)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        rows = ItemRows()

        def collect(batch: masked.MaskedBatch, surprisals: MaskedNats) -> None:
            hidden = (batch.targets != NOT_HIDDEN).cpu()
            row_of = hidden.nonzero()[:, 0].numpy()
            nats, right = (
                np.bincount(row_of, values.double().cpu().numpy(), batch.rows)
                for values in (surprisals.nats, surprisals.is_best)
            )
            for row in np.stack((nats, hidden.sum(1).numpy(), right), 1):
                rows.append(row)

        self._score_location(location, encoding, collect=collect)
        return MaskedScores.scored_items(rows, "blocks")

    def _score_location(self, location: Data, encoding: str, **options: Any) -> MaskedScores:
        self._check_head("evaluate")
        location = as_location(location, "the text")
        tokens = tokenize(TextSource(location, encoding=encoding), masked.stream_of(self.recipe, self.coder.tokenizer))
        examples = masked.examples_of(self.recipe, tokens, self.coder, location, are_scored=True)
        masking = masked.masking_of(self.recipe, self.coder)
        return masked.score(self.model, examples, masking, tokens=len(tokens), unknown=tokens.unknown, **options)

    def protocol(self, scores: MaskedScores) -> str:
        return masked.describe_protocol(self.recipe)

    def score_texts(self, texts: Sequence[str]) -> ScoredTexts:
        ids = [self.coder.encode(text) for text in texts]
        return ScoredTexts(ids, np.array([nats.sum() for nats in pseudo_nats(self.model, self.coder, ids)]))

    def check_can_score(self) -> None:
        self._check_head("score")

    def _check_head(self, method: str) -> None:
        if self.model.head is None:
            advice = "embed computes vectors of texts"
            raise EnsueError(f"{self.run}: the model has no head for masks, which {method} needs; {advice}")


def _run_model(model: Any, ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """Return the vectors (B, T, d) of tokens, and their logits (B, T, V) if the model has a head for masks."""
    masked: MaskedLanguageModel = model
    mask = description.mask_of(ids, lengths)
    h = masked(ids, mask)
    outputs = {"vectors": h} if masked.head is None else {"vectors": h, "logits": masked.head(h)}
    return {name: tensor.masked_fill(~mask.unsqueeze(-1), 0.0) for name, tensor in outputs.items()}
