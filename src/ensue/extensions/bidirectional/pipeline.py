"""The pipeline of bidirectional models: vectors of words in sentences, neighbors, surprisal, scores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.files import Data, as_location
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import EnsueError, check_integer, check_text_list, check_texts, check_type, nearest
from ensue.extensions.bidirectional.layers import FIRST_WORD, BidirectionalModel, BothDirections
from ensue.extensions.bidirectional.model import describe, export_encoder_of
from ensue.extensions.bidirectional.objectives import ContextScores, TwoWayScores, build_objective
from ensue.extensions.bidirectional.page import inspect_words
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.extensions.bidirectional.words import LINE_END, MAX_CALL_WORDS, WordReader, WordText, word_vectors
from ensue.extensions.word_vectors.pipeline import Neighbor, WordTable
from ensue.inspection.page import Inspection
from ensue.metrics.scores import ScoredItems
from ensue.models.modules import device_of
from ensue.nn import SoftmaxHead
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.contract.token_scores import Surprisals, TokenScore
from ensue.tasks.texts.export_encoder import ExportEncoder
from ensue.tasks.texts.framing import batches_by_length
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.vectors.contextual import ContextualPipeline, TextVectors, Vectors, pooling_of, resolve_layer
from ensue.text.tokenizer import WordTokenizer
from ensue.types import State

GAP = "[]"
"""The placeholder of a missing word in a text."""
BATCH_TEXTS = 64
MAX_NEIGHBORS = 1_000_000


class BidirectionalPipeline(ContextualPipeline, TextVectors, ScoringPipeline):
    """The pipeline of a bidirectional language model (ELMo) or context2vec."""

    def __init__(
        self, model: BidirectionalModel, tokenizer: WordTokenizer, recipe: BidirectionalRecipe, *,
        run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model.eval())
        self.tokenizer, self.recipe, self.run = tokenizer, recipe, run
        self.reader, self.objective = WordReader(tokenizer, recipe.words), build_objective(recipe)

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe = directory.recipe
        assert isinstance(recipe, BidirectionalRecipe)
        return cls(directory.model(device), directory.parts.tokenizer, recipe, run=directory.path)

    @property
    def num_layers(self) -> int:
        return int(self.model.num_layers)

    @property
    def d_layers(self) -> int:
        return int(self.model.d_layers)

    def layers_of_words(
        self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean", carry: bool = False
    ) -> list[Vectors]:
        """Return the vectors (L, T, d) of the T words of each sentence in all L layers. The pooling has no effect.

        If `carry` is true, the state of each direction is carried to the next sentence, as in ELMo's original code.
        """
        pooling_of(pooling)
        for words in sentences:
            check_texts(words, "lists of words")
        if self.tokenizer.lowercase:
            sentences = [[word if word == GAP else word.lower() for word in words] for words in sentences]
        empty: Vectors = np.zeros((self.num_layers, 0, self.d_layers), np.float32)
        vectors, state = [empty] * len(sentences), None
        if carry:  # the original code, whose model has no head, also reads a boundary after each sentence
            for index, words in enumerate(sentences):
                (vectors[index],), state = self._read([words], state, closed=self.recipe.head.kind == "none")
            return vectors
        for indices in batches_by_length(range(len(sentences)), [len(x) + 1 for x in sentences], MAX_CALL_WORDS):
            batch, _ = self._read([sentences[index] for index in indices])
            for index, layers in zip(indices, batch, strict=True):
                vectors[index] = layers
        return vectors

    @torch.inference_mode()
    def _read(
        self, sentences: Sequence[Sequence[str]], state: State = None, *, closed: bool = False
    ) -> tuple[list[Vectors], State]:
        *inputs, mask, ids = self.reader.sentences(sentences, device_of(self.model), closed=closed)
        features, state = self.model.read(*inputs, state, mask=mask)
        if closed:
            features = [BothDirections(*(outputs[:, :-1] for outputs in layer)) for layer in features]
        layers = torch.stack(self.model.layers_of_words(features, mask[:, 1 + closed :], ids), 1).float().cpu().numpy()
        return [vectors[:, : len(words)].copy() for vectors, words in zip(layers, sentences, strict=True)], state

    def embed(self, texts: Sequence[str], *, pooling: str = "mean", layer: int = -1) -> Vectors:
        """Return a vector for each text.

        Args:
            texts: N texts.
            pooling: The pooling of the words' vectors: "mean", "max", "first" or "last".
            layer: The number of the layer. Layer 0 has the vectors of words without context. Negative numbers count
                from the last layer.

        Returns:
            Vectors (N, d); zeros for a text without words.
        """
        texts = check_text_list(texts, "texts", are_lists=False)
        pool, layer = pooling_of(pooling), resolve_layer(layer, self.num_layers)
        vectors = np.zeros((len(texts), self.d_layers), np.float32)
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = self.layers_of_words([self.words_of(text) for text in texts[start : start + BATCH_TEXTS]])
            for number, layers in enumerate(batch, start):
                if layers.shape[1]:
                    vectors[number] = pool(layers[layer])
        return vectors

    def neighbors(self, text: str, count: int = 10) -> list[Neighbor]:
        """Return the `count` words whose vectors have the highest cosine with the vector of a word or text.

        The vector of a text is the mean vector of its words. context2vec also ranks words for the gap in "I [] you".
        """
        check_type("the text", text, str, "a string")
        check_integer("count", count, 1, MAX_NEIGHBORS)
        words = text.split() if GAP in text.split() else self.words_of(text)
        if not words:
            raise EnsueError("the text has no words; expected a word or a text")
        if GAP in words:
            return self._table.neighbors(self._embed_gap(words), count)
        vectors = [self._find_vector(word) for word in words]
        return self._table.neighbors(np.mean(vectors, axis=0), count, without=words)

    def _embed_gap(self, words: Sequence[str]) -> NDArray[np.float32]:
        if self.model.target_vectors is None:
            raise EnsueError(f'a gap, {GAP}, needs head.kind = "context"; this model has "{self.recipe.head.kind}"')
        if words.count(GAP) > 1:
            raise EnsueError(f"the gap {GAP} occurs {words.count(GAP)} times; expected once")
        return self.layers_of_words([words])[0][-1, words.index(GAP)]

    def _find_vector(self, word: str) -> NDArray[np.float32]:
        if self.model.target_vectors is not None or self.reader.longest is None:
            vector = self._table.find(word)
            if vector is None:
                raise EnsueError(f'no vector for the word "{word}"{nearest(word, self._table.words)}')
            return vector
        return self._embed_words([word])[0]

    @cached_property
    def _table(self) -> WordTable:
        words = self.tokenizer.vocabulary.symbols[LINE_END + 1 :]
        if not words:
            raise EnsueError("this model has no vocabulary, and therefore no neighbors")
        vectors = self.model.target_vectors
        if vectors is None:
            return WordTable(words, self._embed_words(words))
        return WordTable(words, vectors[LINE_END + 1 :].detach().float().cpu().numpy())

    @torch.inference_mode()
    def _embed_words(self, words: Sequence[str]) -> Vectors:
        return word_vectors(self.model, self.reader, words)[FIRST_WORD:].float().cpu().numpy()

    def score(self, text: str) -> Surprisals:
        """Return the surprisal of each word of `text`, the mean of both directions. Lines are read independently."""
        check_type("the text", text, str, "a string")
        return Surprisals(self.score_stream([text]))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """Yield the surprisals that `score` returns for the text of all `chunks`."""
        self._require_head()
        for _, line in Lines(chunks, "the text"):
            words = self.words_of(line)
            for word, nats in zip(words, self._compute_nats([words])[0].tolist(), strict=True):
                yield TokenScore(word, nats)

    @torch.inference_mode()
    def _compute_nats(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        *inputs, mask, ids = self.reader.sentences(sentences, device_of(self.model))
        features, _ = self.model.read(*inputs)
        contexts = self.model.features_before(features[-1], mask[:, 1:])
        nats = torch.stack([self._require_head().nats(h, ids) for h in contexts])
        return [row[: len(words)] for row, words in zip(nats.double().mean(0).cpu().numpy(), sentences, strict=True)]

    def score_texts(self, texts: Sequence[str]) -> ScoredTexts:
        sentences = [self.words_of(text) for text in texts]
        groups = (sentences[start : start + BATCH_TEXTS] for start in range(0, len(sentences), BATCH_TEXTS))
        totals = [nats.sum() for group in groups for nats in self._compute_nats(group)]
        return ScoredTexts([self.reader.rows(words).ravel() for words in sentences], np.array(totals))

    def check_can_score(self) -> None:
        self._require_head()

    def inspect(self, text: str) -> Inspection:
        """Return the page of a text: predictions and units of both directions, the words that context2vec predicts for
        each position, and a map of the words' vectors. Raises EnsueError for a text without words.
        """
        check_type("the text", text, str, "a string")
        table = None if self.model.target_vectors is None else self._table
        return inspect_words(self, self.reader, self.words_of(text), table, self.recipe.describe())

    def evaluate(
        self, location: Data, *, encoding: str = "utf-8", progress: Callable[[int], None] | None = None
    ) -> TwoWayScores | ContextScores:
        """Return the perplexity of both directions, or the loss of context2vec, on a file, a folder or a glob."""
        return self.objective.score(self.model, self._read_text(location, encoding), self.reader, progress=progress)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        return self.objective.items(self.model, self._read_text(location, encoding), self.reader)

    def _read_text(self, location: Data, encoding: str) -> WordText:
        """Return the text to score. Raises EnsueError for a model without a head."""
        location = as_location(location, "the text")
        if self.recipe.head.kind == "none":
            self._require_head()
        return WordText.read(TextSource(location, encoding=encoding), self.tokenizer)

    def protocol(self, scores: Any) -> str:
        return self.objective.protocol(scores.tokens if isinstance(scores, ContextScores) else scores.forward.tokens)

    def export_encoder(self, pooling: str) -> ExportEncoder:
        return export_encoder_of(self.reader, self.model)

    def describe(self) -> ModelDescription:
        return describe(self.reader, self.model)

    def _require_head(self) -> SoftmaxHead:
        """Return the softmax. Raises EnsueError for a model without a softmax."""
        head = getattr(self.model, "head", None)
        if not isinstance(head, SoftmaxHead):
            raise EnsueError(f'no probabilities of words: the head of this model is "{self.recipe.head.kind}"')
        return head

    def words_of(self, text: str) -> list[str]:
        """Return the words of a text, split as in training."""
        return [word for word in self.tokenizer.words(text) if word != "\n"]

    def __repr__(self) -> str:
        words = f"{self.tokenizer.vocabulary_size:,} words"
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", words)
