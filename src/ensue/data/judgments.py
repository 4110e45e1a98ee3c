"""Readers of human judgments in their published formats: similarity of pairs of texts or words, and analogies.

- Pairs of texts: fields separated by tabs, without quoting. If the first row names the columns (SICK), the names
  determine the columns. A row of seven or more fields has the format of the STS benchmark: the fifth field is the
  score, the next two are the texts. A row of three fields has two texts, and a score before or after them.
- Pairs of words: two words and a score, separated by tabs, commas, semicolons or blanks. The score is the first number
  after the words; other columns are ignored (WordSim-353, SimLex-999, MEN, RW, SimVerb). A first line without a number
  is a header.
- Analogies (Mikolov et al. 2013, `questions-words.txt`): four words in a line. A line `: name` begins each section.
"""

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import DataError, quote

COLUMN_NAMES = (
    ("sentence_a", "sentence1", "sentence_1", "sentence 1", "text1", "text_a", "s1"),
    ("sentence_b", "sentence2", "sentence_2", "sentence 2", "text2", "text_b", "s2"),
    ("relatedness_score", "similarity", "similarity_score", "score"),
)
"""The usual names of the columns of both texts and of the score, in lower case."""
STS_BENCHMARK = (5, 6, 4)
"""The columns of both texts and of the score in the STS benchmark, from 0."""


class JudgedTexts(NamedTuple):
    """Pairs of texts with human similarity judgments."""

    first: list[str]
    second: list[str]
    scores: list[float]


def read_judged_texts(location: str | Path, *, encoding: str = "utf-8") -> JudgedTexts:
    """Return the pairs of texts at a location. Raises DataError (file:line) for an invalid row."""
    paths = TextSource(location, encoding=encoding).paths
    rows = [row for path in paths for row in _read_rows(path, encoding)]
    if not rows:
        raise DataError("no pair of texts with a score", location)
    return JudgedTexts(*map(list, zip(*rows, strict=True)))  # type: ignore[arg-type]


def _read_rows(path: Path, encoding: str) -> Iterator[tuple[str, str, float]]:
    header_columns: list[int] = []
    for index, (number, line) in enumerate(Lines.of(path, encoding=encoding)):
        fields = [field.strip() for field in line.rstrip("\r\n").split("\t")]
        if fields == [""]:
            continue
        if index == 0:
            lowered = [*map(str.lower, fields)]
            indices = [next((lowered.index(n) for n in names if n in lowered), -1) for names in COLUMN_NAMES]
            if -1 not in indices:
                header_columns = indices
                continue
        columns = header_columns or _find_columns(fields)
        if columns is None or max(columns) >= len(fields) or (score := _parse_number(fields[columns[2]])) is None:
            expected = "expected two texts and their similarity between tabs"
            raise DataError(f"{expected}, found {len(fields)} fields: {quote(line.strip())}", path, number)
        yield fields[columns[0]], fields[columns[1]], score


def _find_columns(fields: list[str]) -> tuple[int, int, int] | None:
    if len(fields) >= 7:
        return STS_BENCHMARK
    if len(fields) != 3:
        return None
    return (0, 1, 2) if _parse_number(fields[2]) is not None else (1, 2, 0)


def _parse_number(field: str) -> float | None:
    try:
        number = float(field)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


_SECTION, _SEPARATORS = ":", "\t,;"


class Similarities(NamedTuple):
    """Pairs of words with human similarity judgments. `name` is the name of the file."""

    name: str
    pairs: list[tuple[str, str]]
    scores: list[float]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the words of each pair."""
        return iter(self.pairs)


class Analogies(NamedTuple):
    """Analogy questions by section: a is to b as c is to d. `name` is the name of the file."""

    name: str
    sections: dict[str, list[tuple[str, str, str, str]]]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the words of each question."""
        return chain.from_iterable(self.sections.values())


Questions = Similarities | Analogies


def read_questions(location: str | Path, *, encoding: str = "utf-8") -> list[Questions]:
    """Return the questions of each file at a location. Raises DataError (file:line) for an invalid line."""
    return [_read_file(path, encoding) for path in TextSource(location, encoding=encoding).paths]


def _read_file(path: Path, encoding: str) -> Questions:
    lines = ((number, line.strip()) for number, line in Lines.of(path, encoding=encoding))
    filled = [(number, line) for number, line in lines if line]
    if not filled:
        raise DataError("no question in this file", path)
    is_analogies = filled[0][1].startswith(_SECTION)
    name = path.name.removesuffix(".xz").removesuffix(".gz")
    return _parse_analogies(filled, path, name) if is_analogies else _parse_similarities(filled, path, name)


def _parse_analogies(lines: list[tuple[int, str]], path: Path, name: str) -> Analogies:
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    section = ""
    for number, line in lines:
        words = line.split()
        if words[0].startswith(_SECTION):
            section = line.removeprefix(_SECTION).strip()
            continue
        if len(words) != 4:
            raise DataError(f"expected four words, or a section after a colon; found {quote(line)}", path, number)
        sections.setdefault(section, []).append((words[0], words[1], words[2], words[3]))
    return Analogies(name, sections)


def _parse_similarities(lines: list[tuple[int, str]], path: Path, name: str) -> Similarities:
    result = Similarities(name, [], [])
    for index, (number, line) in enumerate(lines):
        separator = next((candidate for candidate in _SEPARATORS if candidate in line), None)
        first, second, *rest = [*map(str.strip, line.split(separator)), "", ""]
        score = next((score for score in map(_parse_number, rest) if score is not None), None)
        if score is None and index == 0:
            continue  # a header
        if score is None or not second:
            raise DataError(f"expected two words and their similarity, found {quote(line)}", path, number)
        result.pairs.append((first, second))
        result.scores.append(score)
    if not result.pairs:
        raise DataError("expected lines of two words and their similarity, or of analogies; found none", path)
    return result
