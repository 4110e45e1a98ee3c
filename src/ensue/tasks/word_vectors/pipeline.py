"""Word vectors in use: vectors of words and texts, neighbors, analogies, scores, and files for other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_path, check_texts, check_type, check_whole
from ensue.data.files import Location, one_location
from ensue.data.judgments import read_questions
from ensue.data.vector_files import write_word2vec
from ensue.errors import EnsueError, nearest
from ensue.hub import run_name
from ensue.inspection.map_page import NeighborMap, map_section, map_vectors
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.metrics.scores import ScoredItems
from ensue.metrics.words import AnalogyScores, SimilarityScores
from ensue.outputs import check_outputs
from ensue.runs.directory import RunDirectory
from ensue.tasks.vectors.text_vectors import TextVectors, Vectors, pooling_of, unit_vectors
from ensue.tasks.vectors.word_table import Neighbor, WordTable
from ensue.tasks.word_vectors.examples import LINE_END
from ensue.tasks.word_vectors.model import WordVectorParts, ngram_rows
from ensue.text.published import NumberedTokenizer
from ensue.text.words import WordTokenizer

FORMATS = {"word2vec": False, "word2vec-binary": True, "fasttext": False}
"""For each format of `export`, whether it is binary. fastText's .vec is word2vec's text."""
MOST = 1_000_000


def table_of(model: Any, tokenizer: WordTokenizer | NumberedTokenizer, table: Any) -> WordTable:
    """The words of a model with their vectors; with n-grams or pieces also those of other words."""
    words, vectors = tokenizer.vocabulary.symbols[LINE_END + 1 :], model.of_words()[LINE_END + 1 :].numpy()
    if isinstance(tokenizer, NumberedTokenizer):
        return WordTable(words, vectors, partial(_of_pieces, tokenizer, vectors))
    return WordTable(words, vectors, None if model.subwords is None else partial(_of_ngrams, model, table))


def _of_pieces(tokenizer: NumberedTokenizer, vectors: NDArray[np.float32], word: str) -> NDArray[np.float32] | None:
    ids = tokenizer.encode(word)
    rows: NDArray[np.float32] = vectors[ids[ids > LINE_END].astype(np.int64) - LINE_END - 1]
    return rows.mean(0) if len(rows) else None


def _of_ngrams(model: Any, table: Any, word: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = model.of_ngrams(ngram_rows([word], table).values).numpy()
    return vector


class WordVectorsPipeline(TextVectors):
    """Word vectors. A text is cut into words as in training, and lowercased if that was."""

    def __init__(
        self, model: Any, tokenizer: WordTokenizer | NumberedTokenizer, table: WordTable, *, kind: str = "",
        unit_length: bool = False, run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model)
        self.tokenizer, self.table, self.kind, self.run = tokenizer, table, kind, run
        self.unit_length = unit_length

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """The vectors in a run directory; they stay on the CPU."""
        parts: WordVectorParts = directory.parts
        model, recipe = directory.model(torch.device("cpu")), directory.recipe
        table = table_of(model, parts.tokenizer, recipe.vectors)  # type: ignore[attr-defined]
        unit_length = getattr(recipe.vectors, "unit_length", False)  # type: ignore[attr-defined]
        what, run = recipe.describe(), directory.path
        return cls(model, parts.tokenizer, table, kind=what, unit_length=unit_length, run=run)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that have a vector, the most frequent first."""
        return self.table.words

    def vector(self, word: str) -> NDArray[np.float32]:
        """The vector (d,) of a word. Raises EnsueError, with the nearest word, if it has none."""
        check_type("the word", word, str, "a string")
        found = self.table.find(self.lowered(word))
        if found is None:
            raise EnsueError(f'no vector for the word "{word}"{nearest(self.lowered(word), self.words)}')
        return found

    def embed(self, texts: Sequence[str], *, pooling: str = "mean") -> NDArray[np.float32]:
        """A vector for each text, (N, d): the mean of its words' vectors, the maximum of each number, or that of the
        first or last word. Words without a vector do not count; a text without any other has zeros.
        """
        check_texts(texts, "texts")
        pool = pooling_of(pooling)
        found = np.stack([self._pooled(text, pool) for text in texts]) if len(texts) else self._zeros()[None][:0]
        return unit_vectors(found) if self.unit_length else found

    def embed_words(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """A vector for each word of sentences that are lists of words, (T, d) for each; zeros where there is none."""
        zero = self._zeros()
        found = ([self.table.find(self.lowered(word)) for word in words] for words in sentences)
        return [np.stack([zero, *(zero if v is None else v for v in row)])[1:] for row in found]

    def neighbors(self, text: str, count: int = 10) -> list[Neighbor]:
        """The `count` words whose vectors have the highest cosine with that of a word, or with the mean of a text's."""
        check_type("the text", text, str, "a string")
        check_whole("count", count, 1, MOST)
        words = self.words_of(text)
        vectors = [self.vector(word) for word in words] if len(words) == 1 else [self.embed([text])[0]]
        if not np.any(vectors[0]):
            raise EnsueError(f'no vector for any word of "{text:.60}"')
        return self.table.neighbors(vectors[0], count, without=words)

    def inspect(self, text: str, *, count: int = 40) -> Inspection:
        """A map of the `count` nearest neighbors of a text's words, with cosines. Raises as `neighbors` does."""
        near = [neighbor.word for neighbor in self.neighbors(text, count)]
        own = list(dict.fromkeys(word for word in self.words_of(text) if self.table.find(word) is not None))
        vectors = np.stack([self.vector(word) for word in (*own, *near)])
        mean = self.embed([text])[0] if len(own) > 1 else vectors[0]
        number, size = self.table.vectors.shape
        run = {} if self.run is None else {"run": run_name(self.run)}
        facts = {**run, "model": self.kind, "words": f"{number:,}", "numbers of a vector": f"{size:,}"}
        return inspect_neighbors(text, own, near, vectors, mean, facts)

    def analogy(self, a: str, b: str, c: str, count: int = 1) -> list[Neighbor]:
        """The words d for which a is to b as c is to d, by the cosine with b - a + c of unit vectors (3CosAdd)."""
        check_whole("count", count, 1, MOST)
        unit_a, unit_b, unit_c = (unit_vectors(self.vector(word)) for word in (a, b, c))
        return self.table.neighbors(unit_b - unit_a + unit_c, count, without=[self.lowered(w) for w in (a, b, c)])

    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> SimilarityScores | AnalogyScores:
        """The scores on pairs with a judged similarity, or on analogies: a file, a folder or a glob."""
        location = one_location(location, "the location")
        return self.table.score(read_questions(location, encoding=encoding), location)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems | None:
        location = one_location(location, "the location")
        return self.table.scored_items(read_questions(location, encoding=encoding), location)

    def protocol(self, scores: Any) -> str:
        if isinstance(scores, SimilarityScores):
            return f"Spearman's rank correlation of cosines, on {scores.covered:,} of {scores.pairs:,} pairs"
        return f"3CosAdd over {len(self.words):,} words, on {scores.covered:,} of {scores.questions:,} questions"

    def export(self, path: str | Path, format: str = "word2vec", *, overwrite: bool = False) -> None:
        """Writes a file of vectors for gensim, fastText and others; over another's file only with `overwrite`."""
        check_path("the file", path)
        if format not in FORMATS:
            raise EnsueError(f'no format "{format}"{nearest(format, FORMATS)}; known: {", ".join(FORMATS)}')
        check_outputs([self.run or ""], files=[path], overwrite=overwrite)
        write_word2vec(Path(path), self.words, self.table.vectors, binary=FORMATS[format])

    def words_of(self, text: str) -> list[str]:
        """The words of a text, as in training."""
        if isinstance(self.tokenizer, NumberedTokenizer):
            return self.tokenizer.words(text)
        if self.lowered(text) in self.table.places:  # a sense such as bank_2 would be cut
            return [text]
        return [word for word in self.tokenizer.words(text) if word != "\n"]

    def lowered(self, word: str) -> str:
        """Return the word as the table has it."""
        return word.lower() if self.tokenizer.lowercase else word

    def _pooled(self, text: str, pool: Callable[[Vectors], Vectors]) -> Vectors:
        found = [vector for word in self.words_of(text) if (vector := self.table.find(word)) is not None]
        return pool(np.stack(found)) if found else self._zeros()

    def _zeros(self) -> NDArray[np.float32]:
        return np.zeros(self.table.vectors.shape[1], np.float32)

    def __repr__(self) -> str:
        return self._described(self.kind, f"{len(self.words):,} words")


@dataclass(frozen=True)
class NeighborView:
    """The words of a text that have a vector, `own` in number, and behind them the `words` nearest to their mean.

    `similarities` (N,) are the cosines with this mean; `map` has the places of all words.
    """

    words: tuple[str, ...]
    own: int
    similarities: NDArray[np.float32]
    map: NeighborMap


def inspect_neighbors(
    text: str, own: Sequence[str], near: Sequence[str], vectors: Vectors, mean: Vectors, facts: Mapping[str, str]
) -> Inspection:
    """A text with its words, `own`, and the nearest ones; `vectors` (N, d) of both, `mean` (d,) the text's."""
    mean = unit_vectors(mean)
    view = NeighborView((*own, *near), len(own), unit_vectors(vectors) @ mean, map_vectors(vectors))
    return Inspection(clipped(text, TITLE), view, facts, _sections(view))


def _sections(view: NeighborView) -> list[Section]:
    titles = [f"{word}: cosine {cosine:.4f}" for word, cosine in zip(view.words, view.similarities, strict=True)]
    what = "the word" if view.own == 1 else "the text’s words, by their mean"
    about = f"The nearest neighbors of {what}, with the highest cosine."
    ranked = list(enumerate(zip(view.words, view.similarities.tolist(), strict=True)))[view.own :]
    rows = [(number, word, cosine) for number, (word, cosine) in ranked]  # its number on the map
    return [
        map_section(view.map, view.words, own=view.own, titles=titles, heading="Map of neighbors", about=about),
        Section("Neighbors", "tasks/word_vectors/neighbors.html", {"rows": rows}),
    ]
