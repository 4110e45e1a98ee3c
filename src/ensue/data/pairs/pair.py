"""A source text with its target, the layout of their file, and the interface of its formats."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ensue.data.compact_texts import Ragged, RaggedRows
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.errors import DataError
from ensue.parsing import parse_json
from ensue.stored import Stored


class Pair(NamedTuple):
    """One or several source texts, which are read together, and the target: several are references, none is unknown.

    `path` and `line` (from 1): where it begins.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...] = ()
    path: str = ""
    line: int = 0
    group: str = ""
    """The group it belongs to, such as a document; "" if nobody asks."""


class Pairs(list[Pair]):
    """Pairs in memory."""

    @property
    def sources(self) -> list[Hashable]:
        """The group of each pair; without groups its source."""
        return [pair.group or pair.sources for pair in self]

    def num_shared(self, other: Pairs) -> int:
        """How many pairs of others have a source that is here."""
        known = {pair.sources for pair in self}
        return sum(pair.sources in known for pair in other)

    def select(self, rows: Iterable[int]) -> Self:
        """The pairs in these rows."""
        return type(self)(self[row] for row in rows)


class StoredPairs(Sequence[Pair]):
    """Pairs as rows of bytes, which are their JSON. Each is read when somebody looks at it."""

    def __init__(self, rows: Ragged) -> None:
        self._rows = rows

    @staticmethod
    def rows_of(pairs: Iterable[Pair]) -> RaggedRows:
        """The rows of these pairs."""
        found = RaggedRows("B")
        for pair in pairs:
            found.append(np.frombuffer(json.dumps(pair).encode(), np.uint8))
        return found

    def __getitem__(self, place: Any) -> Any:
        """The pair at a place, or a list of those in a slice."""
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        sources, targets, *rest = parse_json(self._rows[range(len(self))[place]].tobytes())
        return Pair(tuple(sources), tuple(targets), *rest)

    def __len__(self) -> int:
        return len(self._rows)


class PairChoice(NamedTuple):
    """The columns that the user names, or gives as numbers (from 1). The rest is detected.

    In a TMX file the columns are languages. If `is_labeled`, targets are read, and a file without them is an error.
    """

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    is_labeled: bool = True
    group: str = ""
    """The column that says what belongs together."""

    @property
    def has_names(self) -> bool:
        """Whether a column is given by name, so that the file must have a header."""
        return any(name and not name.isdecimal() for name in (*self.sources, *self.targets, self.group))


@dataclass(frozen=True, slots=True)
class PairLayout(Stored):
    """How a file is read. It is shown to the user, and kept in a run for later files of the same kind.

    Formats without columns have fixed places for source and target, which `about` describes.
    """

    unstored: ClassVar[frozenset[str]] = frozenset({"group"})
    format: str
    sources: tuple[Column, ...] = ()
    targets: tuple[Column, ...] = ()
    header: bool = False
    about: str = ""
    group: Column | None = None
    """Of training data: the column that says what belongs together. Later files need not have it."""

    def __str__(self) -> str:
        parts = [self.format + (" with a header" if self.header else "")]
        if self.about:
            parts.append(self.about)
        if self.sources:
            parts.append(f"source: {' + '.join(map(str, self.sources))}")
        if self.targets:
            kind = "target" if len(self.targets) == 1 else "references"
            parts.append(f"{kind}: {', '.join(map(str, self.targets))}")
        return ", ".join(parts)

    def choice(self, *, is_labeled: bool) -> PairChoice:
        """The columns as the choice of a user."""
        sources, targets = (
            tuple(column.name or str(column.number) for column in side) for side in (self.sources, self.targets)
        )
        return PairChoice(sources, targets if is_labeled else (), is_labeled)


class PairFormat(ABC):
    """A format of pairs in a text file."""

    name: str
    has_columns = True
    """Whether the person may name columns of sources and targets."""

    @abstractmethod
    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        """How the file is read, by `choice` and its first lines. Raises DataError if that cannot be decided."""

    @abstractmethod
    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        """The pairs of the file in order, in constant memory; without targets unless `is_labeled`. Sides may be empty.

        Raises DataError (file:line) for a record that is no pair.
        """


def with_references(pairs: Iterable[Pair]) -> list[Pair]:
    """A pair for each distinct source, in the order of occurrence, with its distinct targets. It holds all of them."""
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
        found = f", whose target is {_shown(pair.targets[0])}" if any(map(str.strip, pair.targets)) else ""
        raise DataError(f"an empty source{found}", pair.path, pair.line)
    targets = tuple(target for target in pair.targets if target.strip())
    if not targets:
        found = f"an empty target, whose source is {_shown(' '.join(pair.sources))}"
        raise DataError(found, target_path or pair.path, pair.line)
    return pair if len(targets) == len(pair.targets) else pair._replace(targets=targets)


def _shown(text: str) -> str:
    short = " ".join(text[:200].split())
    return f'"{short}"' if len(short) <= 40 else f'"{short[:37]}..."'
