"""The pipeline of word vectors: vectors of words and texts, neighbors, analogies, scores, and export."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.division import SelectableList
from ensue.data.files import Data, as_location
from ensue.data.judgments import Judgment, parse_number
from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.data.vectors import write_word2vec
from ensue.errors import DataError, EnsueError, check_integer, check_path, check_text_list, check_type, nearest, quote
from ensue.extension import run_name
from ensue.extensions.word_vectors.examples import LINE_END
from ensue.extensions.word_vectors.model import WordVectorParts, ngram_buckets
from ensue.extensions.word_vectors.neighbor_map import NeighborMap, map_section, map_vectors
from ensue.inspection.notebook import Answers
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip
from ensue.metrics.scores import AnalogyScores, ItemRows, Numbers, ScoredItems, SimilarityScores, quotient, spearman
from ensue.outputs import check_outputs
from ensue.runs.directory import RunDirectory
from ensue.stored import Copyable
from ensue.tasks.vectors.contextual import TextVectors, Vectors, pooling_of, unit_vectors
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import WordTokenizer

MAX_QUESTIONS = 256
"""The largest number of analogies that are answered at once, which bounds the memory."""
MAX_NEIGHBORS = 1_000_000
FORMATS = {"word2vec": False, "word2vec-binary": True, "fasttext": False}
"""The formats of `export`, with True for binary files. A `.vec` file of fastText is a text file of word2vec."""


class Neighbor(NamedTuple):
    """A word and its cosine with the query."""

    word: str
    similarity: float

    def __repr__(self) -> str:
        return f"{self.word!r} {self.similarity:.4f}"


SECTION, SEPARATORS = ":", "\t,;"


def read_questions(location: str | Path, *, encoding: str = "utf-8") -> SelectableList[Judgment]:
    """Return the questions of all files at a location, in their published formats.

    Pairs have two words and a score, separated by tabs, commas, semicolons or blanks. The score is the first number
    after the words; other columns are ignored (WordSim-353, SimLex-999, MEN, RW, SimVerb). A first line without a
    number is a header. Analogies (Mikolov et al. 2013, `questions-words.txt`) have four words in a line. A line
    `: name` begins each section. Raises DataError (file:line) for an invalid line.
    """
    questions: SelectableList[Judgment] = SelectableList()
    for path in TextSource(location, encoding=encoding).paths:
        lines = ((number, line.strip()) for number, line in Lines.of(path, encoding=encoding))
        filled = [(number, line) for number, line in lines if line]
        if not filled:
            raise DataError("no question in this file", path)
        name = path.name.removesuffix(".xz").removesuffix(".gz")
        read = _read_analogies if filled[0][1].startswith(SECTION) else _read_similarities
        questions += read(filled, path, name)
    return questions


def _read_analogies(lines: list[tuple[int, str]], path: Path, name: str) -> Iterator[Judgment]:
    section = ""
    for number, line in lines:
        words = line.split()
        if words[0].startswith(SECTION):
            section = line.removeprefix(SECTION).strip()
            continue
        if len(words) != 4:
            raise DataError(f"expected four words, or a section after a colon; found {quote(line)}", path, number)
        yield Judgment(tuple(words), section=section, file=name)


def _read_similarities(lines: list[tuple[int, str]], path: Path, name: str) -> Iterator[Judgment]:
    for index, (number, line) in enumerate(lines):
        separator = next((candidate for candidate in SEPARATORS if candidate in line), None)
        first, second, *rest = [*map(str.strip, line.split(separator)), "", ""]
        score = next((score for score in map(parse_number, rest) if score is not None), None)
        if score is None and index == 0 and len(lines) > 1:
            continue  # a header
        if score is None or not second:
            expected = "expected two words and their similarity" + (", or analogies" if len(lines) == 1 else "")
            raise DataError(f"{expected}, found {quote(line)}", path, number)
        yield Judgment((first, second), score, file=name)


class WordTable(Copyable):
    """Words and their `vectors` (V, d).

    A word is looked up as it is, then in lower case, and then by the function `fallback`, which may return None.
    """

    def __init__(
        self, words: Sequence[str], vectors: NDArray[np.float32],
        fallback: Callable[[str], NDArray[np.float32] | None] | None = None,
    ) -> None:  # fmt: skip
        self.words, self.vectors, self.fallback = tuple(words), vectors, fallback
        self.rows = {word: row for row, word in enumerate(self.words)}

    @cached_property
    def units(self) -> NDArray[np.float32]:
        """The vectors (V, d), scaled to length 1."""
        return unit_vectors(self.vectors)

    def row(self, word: str) -> int | None:
        """Return the row of a word in the table; None for an unknown word."""
        return self.rows.get(word, self.rows.get(word.lower()))

    def find(self, word: str) -> NDArray[np.float32] | None:
        """Return the vector (d,) of a word; None for an unknown word."""
        row = self.row(word)
        if row is None:
            return self.fallback(word) if self.fallback else None
        return self.vectors[row]

    def neighbors(self, vector: NDArray[np.float32], count: int, without: Sequence[str] = ()) -> list[Neighbor]:
        """Return `count` words by decreasing cosine with a vector (d,), except the words `without`."""
        cosines = self.units @ unit_vectors(vector[None])[0]
        cosines[[row for word in without if (row := self.row(word)) is not None]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:count]
        return Answers(Neighbor(self.words[n], float(cosines[n])) for n in best if np.isfinite(cosines[n]))

    def answers(self, questions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for each question (a, b, c) of rows, the row with the highest cosine with b - a + c (3CosAdd)."""
        answers = np.empty(len(questions), np.int64)
        for start in range(0, len(questions), MAX_QUESTIONS):
            chunk = questions[start : start + MAX_QUESTIONS]
            a, b, c = (self.units[column] for column in chunk.T)
            cosines = (b - a + c) @ self.units.T
            np.put_along_axis(cosines, chunk, -np.inf, axis=1)
            answers[start : start + MAX_QUESTIONS] = cosines.argmax(1)
        return answers

    def check(self, questions: Sequence[Judgment], location: str) -> None:
        """Raise DataError for a mixture of pairs and analogies, or if every question has a word without a vector."""
        kinds = {question.is_analogy: question.file for question in questions}
        if len(kinds) > 1:
            pairs, analogies = kinds[False], kinds[True]
            raise DataError(f"{pairs} has pairs, {analogies} has analogies; score them in separate commands", location)
        look_up = self.row if True in kinds else self.find  # the words of analogies must be in the table
        if not any(all(look_up(word) is not None for word in question.texts) for question in questions):
            raise DataError("no question has vectors for all its words; check their language and case", location)

    def score(self, questions: Sequence[Judgment]) -> SimilarityScores | AnalogyScores:
        """Return the scores on questions that `check` has accepted, or on a part of them."""
        groups: dict[str, list[Judgment]] = {}
        for question in questions:
            groups.setdefault(question.section if question.is_analogy else question.file, []).append(question)
        if questions[0].is_analogy:
            sections = {name: self._score_analogies(rows) for name, rows in groups.items()}
            counts = [(score.right, score.covered, score.questions) for score in sections.values()]
            right, covered, total = np.sum(counts, axis=0).tolist()
            return AnalogyScores(right, covered, total, sections)
        scores = {name: self._score_pairs(pairs) for name, pairs in groups.items()}
        if len(scores) == 1:
            return next(iter(scores.values()))
        mean = sum(score.spearman for score in scores.values()) / len(scores)
        covered, pairs = np.sum([(score.covered, score.pairs) for score in scores.values()], axis=0).tolist()
        return SimilarityScores(mean, covered, pairs, scores)

    def scored_items(self, questions: Sequence[Judgment], location: str) -> ScoredItems | None:
        """Return the score of each question; None for several files of pairs. Raises DataError like `check`."""
        self.check(questions, location)
        if not questions[0].is_analogy:
            rows = zip(self._compare(questions), [pair.score for pair in questions], strict=True)
            is_one = len({pair.file for pair in questions}) == 1
            return ItemRows(rows).build_items("pairs", {"spearman": _correlate_samples}) if is_one else None
        answers = ItemRows(zip(*self._answer(questions), strict=True))
        return answers.build_items("analogies", {"accuracy": quotient(1, 0)})

    def _score_pairs(self, pairs: Sequence[Judgment]) -> SimilarityScores:
        cosines = self._compare(pairs)
        covered = ~np.isnan(cosines)
        judged = np.array([pair.score for pair in pairs])
        rho = spearman(cosines[covered], judged[covered]) if covered.any() else 0.0
        return SimilarityScores(rho, int(covered.sum()), len(pairs))

    def _compare(self, pairs: Sequence[Judgment]) -> NDArray[np.float64]:
        cosines = np.full(len(pairs), np.nan)
        for number, pair in enumerate(pairs):
            a, b = map(self.find, pair.texts)
            if a is not None and b is not None:
                unit_a, unit_b = unit_vectors(np.stack([a, b]))
                cosines[number] = float(unit_a @ unit_b)
        return cosines

    def _score_analogies(self, questions: Sequence[Judgment]) -> AnalogyScores:
        is_covered, is_correct = self._answer(questions)
        return AnalogyScores(int(is_correct.sum()), int(is_covered.sum()), len(questions))

    def _answer(self, questions: Sequence[Judgment]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return for each analogy whether all words are in the table, and whether the answer is right."""
        rows = [[self.row(word) for word in question.texts] for question in questions]
        is_covered = np.array([None not in row for row in rows], bool)
        covered = np.array([row for row in rows if None not in row], np.int64).reshape(-1, 4)
        is_correct = np.zeros(len(rows), bool)
        is_correct[is_covered] = self.answers(covered[:, :3]) == covered[:, 3]
        return is_covered, is_correct


def _correlate_samples(rows: Numbers, counts: NDArray[np.int64]) -> Numbers:
    """Return the rank correlation of each bootstrap sample of pairs (cosine, judgment); cosines of NaN are left out."""
    covered = ~np.isnan(rows[:, 0])
    samples = (rows[covered].repeat(count[covered], axis=0) for count in counts)
    return np.array([spearman(sample[:, 0], sample[:, 1]) if len(sample) else 0.0 for sample in samples])


def build_word_table(model: Any, tokenizer: WordTokenizer | NumberedTokenizer, table: Any) -> WordTable:
    """Return the words of a model with their vectors. Other words get vectors from n-grams or subwords, if any."""
    words, vectors = tokenizer.vocabulary.symbols[LINE_END + 1 :], model.compute_word_vectors()[LINE_END + 1 :].numpy()
    if isinstance(tokenizer, NumberedTokenizer):  # unlike lambdas, partial functions can be pickled
        return WordTable(words, vectors, partial(_average_subwords, vectors, tokenizer))
    return WordTable(words, vectors, None if model.subwords is None else partial(_average_ngrams, model, table))


def _average_subwords(
    vectors: NDArray[np.float32], tokenizer: NumberedTokenizer, word: str
) -> NDArray[np.float32] | None:
    ids = tokenizer.encode(word)
    rows: NDArray[np.float32] = vectors[ids[ids > LINE_END].astype(np.int64) - LINE_END - 1]
    return rows.mean(0) if len(rows) else None


def _average_ngrams(model: Any, table: Any, word: str) -> NDArray[np.float32]:
    return model.average_ngrams(ngram_buckets([word], table).values).numpy()


class WordVectorsPipeline(TextVectors):
    """The pipeline of word vectors. Texts are split into words, and lowercased, as in training."""

    def __init__(
        self, model: Any, tokenizer: WordTokenizer | NumberedTokenizer, table: WordTable, *, kind: str = "",
        unit_length: bool = False, run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model)
        self.tokenizer, self.table, self.kind, self.run = tokenizer, table, kind, run
        self.unit_length = unit_length
        self.words = table.words
        """The words that have a vector, the most frequent first."""

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """Read the vectors of a run directory to the CPU."""
        parts: WordVectorParts = directory.parts
        model, recipe = directory.model(torch.device("cpu")), directory.recipe
        table = build_word_table(model, parts.tokenizer, recipe.vectors)  # type: ignore[attr-defined]
        unit_length = getattr(recipe.vectors, "unit_length", False)  # type: ignore[attr-defined]
        kind, run = recipe.describe(), directory.path
        return cls(model, parts.tokenizer, table, kind=kind, unit_length=unit_length, run=run)

    def vector(self, word: str) -> NDArray[np.float32]:
        """Return the vector (d,) of a word. Raises EnsueError, with a word of similar spelling, for an unknown word."""
        check_type("the word", word, str, "a string")
        vector = self.table.find(self.lowered(word))
        if vector is None:
            raise EnsueError(f'no vector for the word "{word}"{nearest(self.lowered(word), self.words)}')
        return vector

    def embed(self, texts: Sequence[str], *, pooling: str = "mean") -> NDArray[np.float32]:
        """Return a vector for each text.

        Args:
            texts: N texts.
            pooling: The pooling of the words' vectors: "mean", "max" (of each component), "first" or "last".

        Returns:
            Vectors (N, d). Unknown words are left out; the vector of a text without known words is zero.
        """
        texts = check_text_list(texts, "texts", are_lists=False)
        pool = pooling_of(pooling)
        vectors = np.stack([self._zeros(), *(self._pool_words(text, pool) for text in texts)])[1:]
        return unit_vectors(vectors) if self.unit_length else vectors

    def embed_words(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        """Return the vectors (T, d) of the T words of each sentence; zeros for unknown words."""
        zero = self._zeros()
        rows = ([self.table.find(self.lowered(word)) for word in words] for words in sentences)
        return [np.stack([zero, *(zero if v is None else v for v in row)])[1:] for row in rows]

    def neighbors(self, text: str, count: int = 10) -> list[Neighbor]:
        """Return the `count` words whose vectors have the highest cosine with the vector of a word or text."""
        check_type("the text", text, str, "a string")
        check_integer("count", count, 1, MAX_NEIGHBORS)
        words = self.words_of(text)
        vectors = [self.vector(word) for word in words] if len(words) == 1 else [self.embed([text])[0]]
        if not np.any(vectors[0]):
            raise EnsueError(f'no vector for any word of "{text:.60}"')
        return self.table.neighbors(vectors[0], count, without=words)

    def inspect(self, text: str, *, count: int = 40) -> Inspection:
        """Return the page with a map of the `count` nearest neighbors of a text. Raises EnsueError like `neighbors`."""
        neighbors = [neighbor.word for neighbor in self.neighbors(text, count)]
        known = list(dict.fromkeys(word for word in self.words_of(text) if self.table.find(word) is not None))
        vectors = np.stack([self.vector(word) for word in (*known, *neighbors)])
        mean = self.embed([text])[0] if len(known) > 1 else vectors[0]
        number, size = self.table.vectors.shape
        run = {} if self.run is None else {"run": run_name(self.run)}
        facts = {**run, "model": self.kind, "words": f"{number:,}", "numbers of a vector": f"{size:,}"}
        cosines = unit_vectors(vectors) @ unit_vectors(mean)
        view = NeighborView((*known, *neighbors), len(known), cosines, map_vectors(vectors))
        return Inspection(clip(text, MAX_TITLE_CHARACTERS), view, facts, view.sections())

    def analogy(self, a: str, b: str, c: str, count: int = 1) -> list[Neighbor]:
        """Return the `count` best words d for "a is to b as c is to d", by the cosine with b - a + c (3CosAdd)."""
        check_integer("count", count, 1, MAX_NEIGHBORS)
        unit_a, unit_b, unit_c = (unit_vectors(self.vector(word)) for word in (a, b, c))
        return self.table.neighbors(unit_b - unit_a + unit_c, count, without=[self.lowered(w) for w in (a, b, c)])

    def evaluate(self, location: Data, *, encoding: str = "utf-8") -> SimilarityScores | AnalogyScores:
        """Score the vectors on pairs of words with judged similarities, or on analogies: a file, a folder or a glob."""
        location = as_location(location, "the location")
        questions = read_questions(location, encoding=encoding)
        self.table.check(questions, location)
        return self.table.score(questions)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems | None:
        location = as_location(location, "the location")
        return self.table.scored_items(read_questions(location, encoding=encoding), location)

    def protocol(self, scores: Any) -> str:
        if isinstance(scores, SimilarityScores):
            return f"Spearman's rank correlation of cosines, on {scores.covered:,} of {scores.pairs:,} pairs"
        return f"3CosAdd over {len(self.words):,} words, on {scores.covered:,} of {scores.questions:,} questions"

    def export(self, path: str | Path, format: str = "word2vec", *, overwrite: bool = False) -> None:
        """Write the vectors for gensim, fastText and others. With `overwrite`, replace a file of another program."""
        check_path("the file", path)
        if format not in FORMATS:
            raise EnsueError(f'no format "{format}"{nearest(format, FORMATS)}; known: {", ".join(FORMATS)}')
        check_outputs([self.run or ""], files=[path], overwrite=overwrite)
        write_word2vec(Path(path), self.words, self.table.vectors, binary=FORMATS[format])

    def words_of(self, text: str) -> list[str]:
        """Return the words of a text, split as in training."""
        if isinstance(self.tokenizer, NumberedTokenizer):
            return self.tokenizer.words(text)
        if self.lowered(text) in self.table.rows:  # the splitter would split the name of a sense such as bank_2
            return [text]
        return [word for word in self.tokenizer.words(text) if word != "\n"]

    def lowered(self, word: str) -> str:
        """Return the word, in lower case if the training data were lowercased."""
        return word.lower() if self.tokenizer.lowercase else word

    def _pool_words(self, text: str, pool: Callable[[Vectors], Vectors]) -> Vectors:
        vectors = [vector for word in self.words_of(text) if (vector := self.table.find(word)) is not None]
        return pool(np.stack(vectors)) if vectors else self._zeros()

    def _zeros(self) -> NDArray[np.float32]:
        return np.zeros(self.table.vectors.shape[1], np.float32)

    def __repr__(self) -> str:
        return self._format_repr(self.kind, f"{len(self.words):,} words")


@dataclass(frozen=True)
class NeighborView:
    """The neighbors of a text.

    `words` are the `num_known` words of the text that have vectors, then the neighbors of the mean of these vectors.
    `similarities` (N,) are the cosines of all words with the mean, and `map` has the positions of all words.
    """

    words: tuple[str, ...]
    num_known: int
    similarities: NDArray[np.float32]
    map: NeighborMap

    def sections(self) -> list[Section]:
        """Return the sections of a page: a map of all words, and a table of the neighbors, numbered as on the map."""
        numbered = list(enumerate(zip(self.words, self.similarities.tolist(), strict=True)))
        titles = [f"{word}: cosine {cosine:.4f}" for _, (word, cosine) in numbered]
        subject = "the word" if self.num_known == 1 else "the text’s words, by their mean"
        about = f"The nearest neighbors of {subject}, with the highest cosine."
        rows = [(number, word, cosine) for number, (word, cosine) in numbered[self.num_known :]]
        labels: dict[str, Any] = {"titles": titles, "heading": "Map of neighbors", "about": about}
        return [
            map_section(self.map, self.words, num_queries=self.num_known, **labels),
            Section("Neighbors", "extensions/word_vectors/neighbors.html", {"rows": rows}),
        ]
