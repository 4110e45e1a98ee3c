"""Words in sentences with their senses: their published formats, the nearest senses, and scores.

- Senses of words (CoarseWSD-20): a folder for each word, or one such folder. `classes_map.txt` is a JSON object from
  numbers to senses. `train.data.txt` and `test.data.txt` have a line for each use: the place of the word (from 0), a
  tab, the words. `train.gold.txt` and `test.gold.txt` have the numbers of the senses.
- Word in context: two uses of a word, which have the same meaning or not. A file has `.data` in its name, and the one
  with the answers `.gold`. They are arrays of JSON objects, with `sentence1`, `start1`, `end1`, `sentence2`, ... and
  with `tag` (MCL-WiC), or lines of word, part of speech, `place-place` and both sentences, and of `T` and `F` (WiC).

Files may be compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_path
from ensue.data.decoding import COMPRESSED, decoded
from ensue.data.lines import Lines
from ensue.errors import DataError, EnsueError
from ensue.metrics.scores import Scores
from ensue.parsing import ParseError, parse_json, shown
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.tasks.vectors.text_vectors import unit_vectors

_MAP = "classes_map.txt"
LONGEST_NUMBER = 9
"""The most digits of a place; Python reads no number of thousands of them."""


class WordUse(NamedTuple):
    """The word `words[place]` in its sentence."""

    words: tuple[str, ...]
    place: int


class LabeledUse(NamedTuple):
    """A use of a word, and its sense."""

    use: WordUse
    sense: str


class WordSenses(NamedTuple):
    """The uses of a word with their senses, for learning and for testing."""

    word: str
    train: list[LabeledUse]
    test: list[LabeledUse]


class UsePair(NamedTuple):
    """Two uses of a word, and whether they have the same meaning."""

    first: WordUse
    second: WordUse
    is_same: bool


def read_senses(location: str | Path) -> list[WordSenses]:
    """The words of a folder with folders, or of one word's folder, sorted. Raises DataError for another content."""
    folder = Path(location)
    if not folder.is_dir():
        raise DataError("not a folder; expected one with a folder for each word", folder)
    folders = [folder] if (folder / _MAP).is_file() else sorted(path.parent for path in folder.glob(f"*/{_MAP}"))
    if not folders:
        raise DataError(f"no {_MAP} in it, nor in its folders; expected a folder for each word", folder)
    return [_senses_of(word) for word in folders]


def _senses_of(folder: Path) -> WordSenses:
    names = _json(folder / _MAP)
    if not (isinstance(names, dict) and names and all(type(name) is str for name in names.values())):
        raise DataError('expected an object such as {"0": "bank_river"}', folder / _MAP)
    uses = {split: list(_uses(folder, split, names)) for split in ("train", "test")}
    return WordSenses(folder.name, **uses)


def _uses(folder: Path, split: str, names: dict[str, str]) -> Iterator[LabeledUse]:
    data, gold = (_file(folder / f"{split}.{kind}.txt") for kind in ("data", "gold"))
    for number, (line, label) in enumerate(zip_longest(_lines(data), _lines(gold)), 1):
        if line is None or label is None:
            raise DataError(f"more lines than {(data if line is None else gold).name}", gold if line is None else data)
        place, tab, text = line.partition("\t")
        words = tuple(text.split())
        if not tab or not _is_place(place, words):
            expected = "expected the place of a word, a tab and the sentence"
            raise DataError(f"{expected}, found {shown(line)}", data, number)
        if label not in names:
            raise DataError(f"no sense {shown(label)} in {_MAP}", gold, number)
        yield LabeledUse(WordUse(words, int(place)), names[label])


def _is_place(number: str, words: tuple[str, ...]) -> bool:
    """Whether this is the place of one of the words."""
    return number.isdecimal() and len(number) <= LONGEST_NUMBER and int(number) < len(words)


def read_use_pairs(location: str | Path) -> list[UsePair]:
    """The pairs of uses of a file, with the answers beside it. Raises DataError for another content."""
    data = Path(location)
    before, dot, behind = data.name.rpartition(".data")
    if not dot:
        raise DataError("expected a file whose name has .data in it, with answers beside it (.gold)", data)
    plain = next((behind.removesuffix(ending) for ending in COMPRESSED if behind.endswith(ending)), behind)
    gold = _file(data.with_name(f"{before}.gold{plain}"))
    lines = Lines.of(data)
    is_json = lines.head(1)[:1] and lines.head(1)[0].lstrip().startswith("[")
    if is_json:
        uses = [(_json_use(row, "1", data), _json_use(row, "2", data)) for row in _rows(data)]
        tags: list[Any] = [row.get("tag") if isinstance(row, dict) else row for row in _rows(gold)]
    else:
        uses, tags = _line_uses(data), list(_lines(gold))
    if len(uses) != len(tags):
        raise DataError(f"{len(uses):,} pairs, but {gold.name} has {len(tags):,} answers", data)
    if not uses:
        raise DataError("no pair in it", data)
    for number, tag in enumerate(tags, 1):
        if tag not in ("T", "F"):
            raise DataError(f"answer {number:,}: expected T or F, found {shown(tag)}", gold)
    return [UsePair(*pair, tag == "T") for pair, tag in zip(uses, tags, strict=True)]


def _line_uses(path: Path) -> list[tuple[WordUse, WordUse]]:
    uses = []
    for number, line in enumerate(_lines(path), 1):
        fields = line.split("\t")
        places = fields[2].split("-") if len(fields) == 5 else []
        texts = [tuple(text.split()) for text in fields[3:]]
        if len(places) != 2 or not all(map(_is_place, places, texts)):
            expected = "expected a word, its part of speech, two places (2-5) and two sentences between tabs"
            raise DataError(f"{expected}, found {shown(line)}", path, number)
        first, second = (WordUse(words, int(place)) for words, place in zip(texts, places, strict=True))
        uses.append((first, second))
    return uses


def _json_use(row: Any, side: str, path: Path) -> WordUse:
    """The use in `sentence1`, from `start1` to `end1` in characters."""
    try:
        text, start, end = row[f"sentence{side}"], int(row[f"start{side}"]), int(row[f"end{side}"])
        before = text[:start].split()
        if not (0 <= start < end <= len(text) and text[start:end].strip()):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        expected = f"expected sentence{side}, start{side} and end{side}"
        raise DataError(f"{expected}, found {shown(row)}", path) from None
    return WordUse((*before, text[start:end].strip(), *text[end:].split()), len(before))


def _rows(path: Path) -> list[Any]:
    content = _json(path)
    if not isinstance(content, list):
        raise DataError("expected an array of objects", path)
    return content


def _json(path: Path) -> Any:
    try:
        return parse_json("".join(decoded(path, "utf-8")))
    except ParseError as error:
        raise DataError(str(error), path) from None


def _lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\r\n") for _, line in Lines.of(path))


def _file(path: Path) -> Path:
    """The existing file of this name, compressed or not."""
    candidates = [path, *(path.with_name(path.name + ending) for ending in sorted(COMPRESSED))]
    existing = next((candidate for candidate in candidates if candidate.exists()), None)
    if existing is None:
        raise DataError("no such file", path)
    return existing


MAX_LAYERS = 4
"""The number of layers whose vectors are added up."""
SENTENCES = 512
"""The number of sentences whose vectors of all layers are in memory at once."""


class Senses:
    """The senses of a word, each as the mean of the unit vectors of its examples.

    A use has the sense with the highest cosine (Loureiro et al. 2021). Its vector is the sum of the last four layers,
    or of all but the embeddings if there are fewer.
    """

    def __init__(self, model: ContextualPipeline, examples: Sequence[LabeledUse]) -> None:
        if not examples:
            raise EnsueError("senses are learned from labeled examples; found none")
        self.model = model
        self.names = sorted({example.sense for example in examples})
        vectors = use_vectors(model, [example.use for example in examples])
        gold = np.array([self.names.index(example.sense) for example in examples])
        self._centers = unit_vectors(np.stack([vectors[gold == sense].mean(0) for sense in range(len(self.names))]))

    def cosines(self, uses: Sequence[WordUse]) -> NDArray[np.float64]:
        """Return the cosine of each use with each sense, (N, senses)."""
        vectors = use_vectors(self.model, uses) if uses else np.zeros((0, self._centers.shape[1]))
        cosines: NDArray[np.float64] = vectors @ self._centers.T
        return cosines

    def nearest(self, uses: Sequence[WordUse]) -> list[str]:
        """Return the sense of each use."""
        return [self.names[sense] for sense in self.cosines(uses).argmax(1)]


def use_vectors(model: ContextualPipeline, uses: Sequence[WordUse]) -> NDArray[np.float64]:
    """Return the unit vector of each use (N, d); zeros for an unseen word. Raises EnsueError where there is no word."""
    if wrong := next((use for use in uses if not 0 <= use.place < len(use.words)), None):
        raise EnsueError(f"no word {wrong.place} in a sentence of {len(wrong.words)} words; the first one is 0")
    blocks = (uses[first : first + SENTENCES] for first in range(0, len(uses), SENTENCES))
    vectors = [vector for block in blocks for vector in _sums(model, block)]
    return unit_vectors(np.stack(vectors)) if vectors else np.zeros((0, 1))


def _sums(model: ContextualPipeline, uses: Sequence[WordUse]) -> Iterator[NDArray[np.float64]]:
    for use, layers in zip(uses, model.layers_of_words([use.words for use in uses]), strict=True):
        count = max(1, min(MAX_LAYERS, len(layers) - 1))
        yield layers[-count:, use.place].astype(np.float64).sum(0)


def senses(model: ContextualPipeline, examples: Sequence[tuple[Sequence[str], int, str]]) -> Senses:
    """Return the senses of a word, from examples: a sentence's words, the word's place (from 0), its sense."""
    return Senses(model, [LabeledUse(WordUse(tuple(words), place), sense) for words, place, sense in examples])


@dataclass(frozen=True)
class SenseScores(Scores):
    """The agreement of predicted senses with the right ones.

    `micro_recall` is the share of all uses. `macro_recall` is the mean over words of the mean recall of their senses.
    `words` has the share of right uses of each word.
    """

    micro_recall: float
    macro_recall: float
    uses: int
    words: dict[str, float]

    def summary(self) -> str:
        recalls = f"micro recall {self.micro_recall:.4f}, macro recall {self.macro_recall:.4f}"
        return f"{recalls}, {self.uses:,} uses of {len(self.words):,} words"


def sense_scores(model: ContextualPipeline, location: str | Path) -> SenseScores:
    """Return how often the nearest sense is the right one, for the words of a folder (CoarseWSD-20)."""
    check_path("the senses", location)
    pairs = {}
    for word in read_senses(location):
        if not word.train or not word.test:
            raise DataError(f'"{word.word}" has no use to {"test" if word.train else "learn from"}', location)
        nearest = Senses(model, word.train).nearest([example.use for example in word.test])
        pairs[word.word] = [(example.sense, sense) for example, sense in zip(word.test, nearest, strict=True)]
    return score_senses(pairs)


def score_senses(pairs: Mapping[str, Sequence[tuple[str, str]]]) -> SenseScores:
    """Return the scores of pairs of right and predicted sense, for each word."""
    right = {word: np.array([gold == sense for gold, sense in uses]) for word, uses in pairs.items()}
    golds = {word: np.array([gold for gold, _ in uses]) for word, uses in pairs.items()}
    recalls = [np.mean([right[word][gold == one].mean() for one in np.unique(gold)]) for word, gold in golds.items()]
    everything = np.concatenate(list(right.values()))
    shares = {word: float(is_right.mean()) for word, is_right in right.items()}
    return SenseScores(float(everything.mean()), float(np.mean(recalls)), len(everything), shares)


@dataclass(frozen=True)
class WordInContextScores(Scores):
    """The share of pairs of uses whose meanings are rightly predicted to be the same, or different.

    The prediction is "the same" for a cosine above `threshold`, which is the best one for other pairs.
    """

    accuracy: float
    threshold: float
    pairs: int

    def summary(self) -> str:
        return f"accuracy {self.accuracy:.4f}, {self.pairs:,} pairs, the same meaning above {self.threshold:.4f}"


def word_in_context(
    model: ContextualPipeline, location: str | Path, *, threshold_from: str | Path
) -> WordInContextScores:
    """Return how often the cosine of two uses of a word tells whether they mean the same, for a file of pairs (WiC,
    MCL-WiC). The threshold is the best one for the pairs of `threshold_from`, which should be others.
    """
    check_path("the pairs", location)
    check_path("the pairs", threshold_from)
    threshold = best_cosine(*_compared(model, threshold_from))
    cosines, is_same = _compared(model, location)
    return WordInContextScores(float(((cosines > threshold) == is_same).mean()), threshold, len(cosines))


def _compared(model: ContextualPipeline, location: str | Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    pairs = read_use_pairs(location)
    first = use_vectors(model, [pair.first for pair in pairs])
    second = use_vectors(model, [pair.second for pair in pairs])
    return (first * second).sum(1), np.array([pair.is_same for pair in pairs])


def best_cosine(cosines: NDArray[np.float64], is_same: NDArray[np.bool_]) -> float:
    """Return the lowest threshold with the most pairs on their right side: the same meaning above it."""
    order = np.argsort(cosines, kind="stable")
    values, same = cosines[order], is_same[order]
    right = np.concatenate([[0], np.cumsum(~same)]) + np.concatenate([np.cumsum(same[::-1])[::-1], [0]])
    edges = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1]]])
    cuts = np.flatnonzero(np.concatenate([[True], values[1:] > values[:-1], [True]]))
    return float(edges[cuts[right[cuts].argmax()]])
