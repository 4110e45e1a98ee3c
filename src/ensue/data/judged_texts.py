"""Pairs of texts whose similarity people have judged, in their published formats.

A row has fields between tabs, without quoting. With a first row of names, the columns are found by them (SICK). Rows of
seven fields or more are those of the STS benchmark: the fifth is the score, the next two are the texts. Rows of three
are two texts and a number, which comes first or last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
