"""Judgments of people in their published formats: pairs of texts or words with their similarity, and analogies.

- Pairs of texts: a row has fields between tabs, without quoting. With a first row of names, the columns are found by
  them (SICK). Rows of seven fields or more are those of the STS benchmark: the fifth is the score, the next two are the
  texts. Rows of three are two texts and a number, which comes first or last.
- Pairs of words: two words and a number, between tabs, commas, semicolons or blanks. The first number behind the words
  counts. So a part of speech may stand before it, and other columns behind it (WordSim-353, SimLex-999, MEN, RW,
  SimVerb). A first line without a number names the columns.
- Analogies (Mikolov et al. 2013, `questions-words.txt`): four words in a line, a line `: name` before each section.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ensue.data.lines import Lines
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.parsing import shown

NAMES = (
    ("sentence_a", "sentence1", "sentence_1", "sentence 1", "text1", "text_a", "s1"),
    ("sentence_b", "sentence2", "sentence_2", "sentence 2", "text2", "text_b", "s2"),
    ("relatedness_score", "similarity", "similarity_score", "score"),
)
"""The names of the columns of both texts and of the score, in lower case."""
STS_BENCHMARK = (5, 6, 4)


class JudgedTexts(NamedTuple):
    """Pairs of texts, and for each the similarity that people have given it."""

    first: list[str]
    second: list[str]
    scores: list[float]


def read_judged_texts(location: str | Path, *, encoding: str = "utf-8") -> JudgedTexts:
    """The pairs of a file, a folder or a glob. Raises DataError (file:line) for a row of another form."""
    found = JudgedTexts([], [], [])
    for path in TextSource(location, encoding=encoding).paths:
        for first, second, score in _rows(path, encoding):
            found.first.append(first)
            found.second.append(second)
            found.scores.append(score)
    if not found.scores:
        raise DataError("no pair of texts with a score in it", location)
    return found


def _rows(path: Path, encoding: str) -> Iterator[tuple[str, str, float]]:
    named: tuple[int, ...] | None = None
    for place, (number, line) in enumerate(Lines.of(path, encoding=encoding)):
        fields = [field.strip() for field in line.rstrip("\r\n").split("\t")]
        if fields == [""]:
            continue
        if place == 0 and (named := _named(fields)) is not None:
            continue
        columns = named or _columns(fields)
        if columns is None or max(columns) >= len(fields) or (score := _number(fields[columns[2]])) is None:
            expected = "expected two texts and their similarity between tabs"
            raise DataError(f"{expected}, found {len(fields)} fields: {shown(line.strip())}", path, number)
        yield fields[columns[0]], fields[columns[1]], score


def _named(fields: list[str]) -> tuple[int, ...] | None:
    """The places of both texts and of the score; None unless the fields name all three."""
    lowered = [field.lower() for field in fields]
    places = [next((lowered.index(name) for name in names if name in lowered), None) for names in NAMES]
    return None if None in places else tuple(place for place in places if place is not None)


def _columns(fields: list[str]) -> tuple[int, int, int] | None:
    if len(fields) >= 7:
        return STS_BENCHMARK
    if len(fields) != 3:
        return None
    return (0, 1, 2) if _number(fields[2]) is not None else (1, 2, 0)


def _number(field: str) -> float | None:
    try:
        number = float(field)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


_SECTION = ":"
_SEPARATORS = "\t,;"


class Similarities(NamedTuple):
    """Pairs of words, and for each the similarity that people have given it."""

    name: str
    pairs: list[tuple[str, str]]
    scores: list[float]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The words of each pair."""
        return iter(self.pairs)


class Analogies(NamedTuple):
    """For each section the questions: a is to b as c is to d."""

    name: str
    sections: dict[str, list[tuple[str, str, str, str]]]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The words of each question."""
        return chain.from_iterable(self.sections.values())


Questions = Similarities | Analogies


def read_questions(location: str | Path, *, encoding: str = "utf-8") -> list[Questions]:
    """The questions of each file of a location, in order. Raises DataError (file:line) for a line of another form."""
    paths = TextSource(location, encoding=encoding).paths
    return [_read(path, encoding) for path in paths]


def _read(path: Path, encoding: str) -> Questions:
    lines = ((number, line.strip()) for number, line in Lines.of(path, encoding=encoding))
    filled = [(number, line) for number, line in lines if line]
    if not filled:
        raise DataError("no question in it", path)
    is_analogies = filled[0][1].startswith(_SECTION)
    name = path.name.removesuffix(".xz").removesuffix(".gz")
    return _analogies(filled, path, name) if is_analogies else _similarities(filled, path, name)


def _analogies(lines: list[tuple[int, str]], path: Path, name: str) -> Analogies:
    sections: dict[str, list[tuple[str, str, str, str]]] = {}
    section = ""
    for number, line in lines:
        words = line.split()
        if words[0].startswith(_SECTION):
            section = line.removeprefix(_SECTION).strip()
            continue
        if len(words) != 4:
            raise DataError(f"expected four words, or a section after a colon; found {shown(line)}", path, number)
        sections.setdefault(section, []).append((words[0], words[1], words[2], words[3]))
    return Analogies(name, sections)


def _similarities(lines: list[tuple[int, str]], path: Path, name: str) -> Similarities:
    found = Similarities(name, [], [])
    for place, (number, line) in enumerate(lines):
        first, second, *rest = [*_fields(line), "", ""]
        score = next((score for score in map(_number, rest) if score is not None), None)
        if score is None and place == 0:
            continue  # it names the columns
        if score is None or not second:
            raise DataError(f"expected two words and their similarity, found {shown(line)}", path, number)
        found.pairs.append((first, second))
        found.scores.append(score)
    if not found.pairs:
        raise DataError("expected lines of two words and their similarity, or of analogies; found none", path)
    return found


def _fields(line: str) -> list[str]:
    separator = next((sign for sign in _SEPARATORS if sign in line), None)
    return [field.strip() for field in line.split(separator)]
