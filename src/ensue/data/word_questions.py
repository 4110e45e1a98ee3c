"""Questions about words in their published formats: pairs whose similarity people have judged, and analogies.

- Analogies (Mikolov et al. 2013, `questions-words.txt`): four words in a line, a line `: name` before each section.
- Pairs: two words and a number, between tabs, commas, semicolons or blanks. The first number behind the words counts.
  So a part of speech may stand before it, and other columns behind it (WordSim-353, SimLex-999, MEN, RW, SimVerb). A
  first line without a number names the columns.
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
        score = next(_numbers(rest), None)
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


def _numbers(fields: list[str]) -> Iterator[float]:
    for field in fields:
        try:
            number = float(field)
        except ValueError:
            continue
        if math.isfinite(number):
            yield number
