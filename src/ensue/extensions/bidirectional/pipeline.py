"""A model that reads in both directions in use: vectors of words in their sentences, neighbors, scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_texts, check_type, check_whole
from ensue.data.files import Location, one_location
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import EnsueError, nearest
from ensue.extensions.bidirectional.layers import FIRST_WORD, BidirectionalModel
from ensue.extensions.bidirectional.model import describe, reading_of
from ensue.extensions.bidirectional.objectives import ContextScores, TwoWayScores, objective_of
from ensue.extensions.bidirectional.page import inspect_words
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.extensions.bidirectional.words import (
    LINE_END,
    SentenceReader,
    WordReader,
    WordText,
    word_vectors,
)
from ensue.inspection.page import Inspection
from ensue.metrics.scores import ScoredItems
from ensue.models.modules import device_of
from ensue.nn import SoftmaxHead
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.contract.token_scores import Surprisals, TokenScore
from ensue.tasks.texts.minimal_pairs import ScoredTexts, ScoringPipeline
from ensue.tasks.texts.portable_reading import PortableReading
from ensue.tasks.vectors.contextual import ContextualPipeline, checked_layer
from ensue.tasks.vectors.text_vectors import TextVectors, Vectors, pooling_of
from ensue.tasks.vectors.word_table import Neighbor, WordTable
from ensue.text.words import WordTokenizer

GAP = "[]"
"""The place of a word that is looked for."""
TEXTS_TOGETHER = 64
MOST = 1_000_000


class BidirectionalPipeline(ContextualPipeline, TextVectors, ScoringPipeline):
    """A bidirectional language model (ELMo), or a model of contexts (context2vec); its layers are those of
    `SentenceReader`. A sentence is read by itself, from zeros, unless its state is carried.
    """

    def __init__(
        self,
        model: BidirectionalModel,
        tokenizer: WordTokenizer,
        recipe: BidirectionalRecipe,
        *,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model.eval())
        self.tokenizer, self.recipe, self.run = tokenizer, recipe, run
        self.reader, self.objective = WordReader(tokenizer, recipe.words), objective_of(recipe)
        self.sentences = SentenceReader(model, self.reader)
        self._table: WordTable | None = None

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
        """For each sentence the vectors (L, T, d) of its T words in all layers.

        They do not depend on the other sentences, unless `carry`: then each direction goes on from its state after the
        sentence before, as the first programs of ELMo did. The name of a pooling is checked and has no effect, since a
        word is read whole.
        """
        pooling_of(pooling)
        for words in sentences:
            check_texts(words, "a list of lists of words")
        lowered = [[self._lowered(word) for word in words] for words in sentences]
        if carry:
            return self.sentences.read_on(lowered, closed=self.recipe.head.kind == "none")
        return self.sentences.read(lowered)

    def embed(self, texts: Sequence[str], *, pooling: str = "mean", layer: int = -1) -> Vectors:
        """A vector for each text, (N, d), from those of its words in a layer; zeros for a text without words.

        Layer 0 are the vectors of words; negative numbers count from the last. Raises EnsueError for a pooling or a
        layer that there is not.
        """
        check_texts(texts, "a list of texts")
        pool, chosen = pooling_of(pooling), checked_layer(layer, self.num_layers)
        vectors = np.zeros((len(texts), self.d_layers), np.float32)
        for first in range(0, len(texts), TEXTS_TOGETHER):
            found = self.layers_of_words([self.words_of(text) for text in texts[first : first + TEXTS_TOGETHER]])
            for number, layers in enumerate(found, first):
                if layers.shape[1]:
                    vectors[number] = pool(layers[chosen])
        return vectors

    def neighbors(self, text: str, count: int = 10) -> list[Neighbor]:
        """The `count` words of the vocabulary whose vectors have the highest cosine with that of a word, or with the
        mean of a text's words; of a model of contexts also those that fit in the gap of a text: "I [] you".
        """
        check_type("the text", text, str, "a string")
        check_whole("count", count, 1, MOST)
        words = text.split() if GAP in text.split() else self.words_of(text)
        if not words:
            raise EnsueError("no word in the text; expected one, or a text")
        if GAP in words:
            return self._table_of_words().neighbors(self._context_of(words), count)
        vectors = [self._vector(word) for word in words]
        return self._table_of_words().neighbors(np.mean(vectors, axis=0), count, without=words)

    def _context_of(self, words: Sequence[str]) -> NDArray[np.float32]:
        if self.model.fitting is None:
            raise EnsueError(f'a gap, written {GAP}, is for models with head.kind = "context"; this one has "softmax"')
        if words.count(GAP) > 1:
            raise EnsueError(f"{words.count(GAP)} gaps, written {GAP}; expected one")
        context: NDArray[np.float32] = self.layers_of_words([words])[0][-1, words.index(GAP)]
        return context

    def _vector(self, word: str) -> NDArray[np.float32]:
        if self.model.fitting is not None or self.reader.longest is None:
            found = self._table_of_words().find(word)
            if found is None:
                raise EnsueError(f'no vector for the word "{word}"{nearest(word, self._table_of_words().words)}')
            return found
        vector: NDArray[np.float32] = self._vectors_of([word])[0]
        return vector

    def _table_of_words(self) -> WordTable:
        """The words of the vocabulary with their vectors, which do not depend on a context."""
        if self._table is None:
            words = self.tokenizer.vocabulary.symbols[LINE_END + 1 :]
            if not words:
                raise EnsueError("this model has no vocabulary whose words could be neighbors")
            fitting = self.model.fitting
            known = None if fitting is None else fitting[LINE_END + 1 :].detach().float().cpu().numpy()
            vectors = self._vectors_of(words) if known is None else known
            self._table = WordTable(words, vectors)
        return self._table

    @torch.inference_mode()
    def _vectors_of(self, words: Sequence[str]) -> Vectors:
        found: Vectors = word_vectors(self.model, self.reader, words)[FIRST_WORD:].float().cpu().numpy()
        return found

    def score(self, text: str) -> Surprisals:
        """The surprisal of each word of `text`, the mean of both directions: each line is read by itself."""
        check_type("the text", text, str, "a string")
        return Surprisals(self.score_stream([text]))

    def score_stream(self, chunks: Iterable[str]) -> Iterator[TokenScore]:
        """The surprisal of each word of each line of a text in pieces, the mean of both directions."""
        self._head()
        for _, line in Lines(chunks, "the text"):
            words = self.words_of(line)
            for word, nats in zip(words, self._nats([words])[0].tolist(), strict=True):
                yield TokenScore(word, nats)

    @torch.inference_mode()
    def _nats(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The surprisal of each word of each sentence, the mean of both directions."""
        numbered, mask = self.reader.sentences(sentences)
        device, inside = device_of(self.model), torch.from_numpy(mask[:, 1:])
        both, rightward, leftward = (torch.from_numpy(part).to(device) for part in numbered)
        features, _ = self.model.read(both, rightward, leftward)
        ids = torch.zeros(inside.shape, dtype=torch.int64)
        ids[inside] = torch.tensor([id for words in sentences for id in self.reader.ids(words)], dtype=torch.int64)
        ways = self.model.beside(features[-1], inside.to(device))
        mean = torch.stack([self._head().nats(h, ids.to(device)) for h in ways]).double().mean(0).cpu().numpy()
        return [row[: len(words)] for row, words in zip(mean, sentences, strict=True)]

    def total_nats(self, texts: Sequence[str]) -> ScoredTexts:
        sentences = [self.words_of(text) for text in texts]
        groups = (sentences[first : first + TEXTS_TOGETHER] for first in range(0, len(sentences), TEXTS_TOGETHER))
        totals = [nats.sum() for group in groups for nats in self._nats(group)]
        return ScoredTexts([self.reader.rows(words).ravel() for words in sentences], np.array(totals))

    def check_scores(self) -> None:
        self._head()

    def inspect(self, text: str) -> Inspection:
        """Look into the model with a text: what each direction expected, their units, the words that fit in a
        place (of a model of contexts), and a map of the words. The text is read in one piece.

        Raises EnsueError for a text without words.
        """
        check_type("the text", text, str, "a string")
        table = None if self.model.fitting is None else self._table_of_words()
        return inspect_words(self, self.reader, self.words_of(text), table, self.recipe.describe())

    def evaluate(
        self, location: Location, *, encoding: str = "utf-8", progress: Callable[[int], None] | None = None
    ) -> TwoWayScores | ContextScores:
        """The scores on a file, a folder or a glob: perplexity in both directions, or the loss of contexts."""
        text = self._text(location, encoding)
        return self.objective.score(self.model, text, self.reader, progress=progress)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return self.objective.items(self.model, self._text(location, encoding), self.reader)

    def _text(self, location: Location, encoding: str) -> WordText:
        """The text to score. Raises EnsueError for a model without a head."""
        location = one_location(location, "the text")
        if self.recipe.head.kind == "none":
            self._head()
        return WordText.read(TextSource(location, encoding=encoding), self.tokenizer)

    def protocol(self, scores: Any) -> str:
        tokens = scores.tokens if isinstance(scores, ContextScores) else scores.forward.tokens
        return self.objective.protocol(tokens)

    def portable_reading(self, pooling: str) -> PortableReading:
        return reading_of(self.reader, self.model)

    def describe(self) -> ModelDescription:
        return describe(self.reader, self.model)

    def _head(self) -> SoftmaxHead:
        """The softmax. Raises EnsueError for a model without one."""
        head = getattr(self.model, "head", None)
        if not isinstance(head, SoftmaxHead):
            raise EnsueError(f'no probabilities of words: the head of this model is "{self.recipe.head.kind}"')
        return head

    def words_of(self, text: str) -> list[str]:
        """The words of a text, as in training."""
        return [word for word in self.tokenizer.words(text) if word != "\n"]

    def _lowered(self, word: str) -> str:
        return word.lower() if self.tokenizer.lowercase and word != GAP else word

    def __repr__(self) -> str:
        words = f"{self.tokenizer.vocabulary_size:,} words"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", words)
