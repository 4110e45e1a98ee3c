"""A labeled text and a pair of texts, source and target: the examples that files of columns or lines have."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from ensue.data.compact_texts import Ragged, RaggedRows
from ensue.errors import DataError
from ensue.parsing import parse_json


@dataclass(frozen=True, slots=True)
class Document:
    """A text, or a pair of texts, with one label, several, or none (unlabeled).

    `source` is the record as in its file, with its line end. `before` is the text between the record before and this
    one (a header, empty lines). Both are written again with nothing changed but the label.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    path: str = ""
    line: int = 0
    source: str = ""
    before: str = ""
    group: str = ""
    """The group it belongs to, such as an author; "" if no column of groups is read."""

    @property
    def is_empty(self) -> bool:
        """Whether no text of it has anything but white space."""
        return not any(text.strip() for text in self.texts)


class Pair(NamedTuple):
    """One or several source texts, which are read together, and the target: several are references, none is unknown.

    `path` and `line` (from 1): where it begins.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...] = ()
    path: str = ""
    line: int = 0
    group: str = ""
    """The group it belongs to, such as a document; "" if no column of groups is read."""


class Pairs(list[Pair]):
    """Pairs in memory."""

    @property
    def sources(self) -> list[Hashable]:
        """The group of each pair; without groups its source."""
        return [pair.group or pair.sources for pair in self]

    def num_shared(self, other: Pairs) -> int:
        """The number of pairs of others with a source that is here."""
        known = {pair.sources for pair in self}
        return sum(pair.sources in known for pair in other)

    def select(self, rows: Iterable[int]) -> Self:
        """The pairs in these rows."""
        return type(self)(self[row] for row in rows)


class StoredPairs(Sequence[Pair]):
    """Pairs as rows of bytes, which are their JSON; a pair is parsed at each access."""

    def __init__(self, rows: Ragged) -> None:
        self._rows = rows

    @staticmethod
    def rows_of(pairs: Iterable[Pair]) -> RaggedRows:
        """The rows of these pairs."""
        rows = RaggedRows("B")
        for pair in pairs:
            rows.append(np.frombuffer(json.dumps(pair).encode(), np.uint8))
        return rows

    def __getitem__(self, place: Any) -> Any:
        """The pair at a place, or a list of those in a slice."""
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        sources, targets, *rest = parse_json(self._rows[range(len(self))[place]].tobytes())
        return Pair(tuple(sources), tuple(targets), *rest)

    def __len__(self) -> int:
        return len(self._rows)


def with_references(pairs: Iterable[Pair]) -> list[Pair]:
    """A pair for each distinct source, in the order of occurrence, with its distinct targets. All are in memory."""
    first: dict[tuple[str, ...], Pair] = {}
    targets: dict[tuple[str, ...], dict[str, None]] = {}
    for pair in pairs:
        first.setdefault(pair.sources, pair)
        targets.setdefault(pair.sources, {}).update(dict.fromkeys(pair.targets))
    return [pair._replace(targets=tuple(targets[sources])) for sources, pair in first.items()]


def checked_pair(pair: Pair, target_path: str = "") -> Pair:
    """The pair, without empty references beside others. Raises DataError for an empty side.

    `target_path` is the file of the target, if it is not that of the source.
    """
    if not any(source.strip() for source in pair.sources):
        target = f", whose target is {_quoted(pair.targets[0])}" if any(map(str.strip, pair.targets)) else ""
        raise DataError(f"an empty source{target}", pair.path, pair.line)
    targets = tuple(target for target in pair.targets if target.strip())
    if not targets:
        message = f"an empty target, whose source is {_quoted(' '.join(pair.sources))}"
        raise DataError(message, target_path or pair.path, pair.line)
    return pair if len(targets) == len(pair.targets) else pair._replace(targets=targets)


def _quoted(text: str) -> str:
    short = " ".join(text[:200].split())
    return f'"{short}"' if len(short) <= 40 else f'"{short[:37]}..."'


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """The distinct labels of a field, without blanks around them."""
    if not separator:
        return (label,) if (label := field.strip()) else ()
    return tuple(dict.fromkeys(label for part in field.split(separator) if (label := part.strip())))
