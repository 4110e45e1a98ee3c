"""The layout of a file of examples, the columns that a user names, and the interface of the formats.

Labeled texts and pairs have a view each: `DocumentChoice`, `DocumentLayout` and `DocumentFormat`; `PairChoice`,
`PairLayout` and `PairFormat`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ensue.data.examples.example import Document, Pair
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.stored import Stored


class ColumnChoice(ABC):
    """The columns that the user names, or gives as numbers (from 1). The rest is detected."""

    __slots__ = ()
    settings: ClassVar[str]
    """The settings that name columns, for messages."""
    options: ClassVar[str]
    """The options of commands that name the same columns."""
    is_labeled: bool
    group: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The named columns without that of groups."""

    @property
    def has_names(self) -> bool:
        """Whether a column is given by name, so that the file must have a header."""
        return any(name and not name.isdecimal() for name in (*self.names, self.group))


@dataclass(frozen=True, slots=True)
class DocumentChoice(ColumnChoice):
    """The columns of labeled texts that the user names."""

    settings = "data.texts and data.labels"
    options = "--words and --labels"
    texts: tuple[str, ...] = ()
    """Names or numbers (from 1) of one text, of the two of a pair, or of the parts of one text if `joined`."""
    labels: str = ""
    header: bool | None = None
    separator: str = ""
    joined: bool = False
    is_labeled: bool = True
    """Whether a file without labels is an error."""
    group: str = ""
    """The column of groups; examples of a group stay together in training or validation."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.texts, *filter(None, [self.labels]))


@dataclass(frozen=True, slots=True)
class PairChoice(ColumnChoice):
    """The columns of pairs that the user names; in a file with languages as columns, their codes."""

    settings = "data.sources and data.targets"
    options = "--sources and --targets"
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    is_labeled: bool = True
    """Whether targets are read; a file without them is then an error."""
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.sources, *self.targets)


ChoiceT = TypeVar("ChoiceT", bound=ColumnChoice)


class Layout(Stored, ABC, Generic[ChoiceT]):
    """How a file is read. It is shown to the user, and stored in a run for later files of the same kind.

    If columns have names (a header, JSON), a later file may have them in another order.
    """

    unstored: ClassVar[frozenset[str]] = frozenset({"group"})
    format: str
    header: bool
    group: Column | None

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the columns of texts or of sources, if they have names."""

    @abstractmethod
    def choice(self, asked: ChoiceT) -> ChoiceT:
        """The columns of this layout as the choice of a user; what else to read as in `asked`."""

    def remainder(self, asked: ChoiceT) -> ChoiceT:
        """`asked`, with what this layout has beside columns."""
        return asked


@dataclass(frozen=True, slots=True)
class DocumentLayout(Layout[DocumentChoice]):
    """How a file of labeled texts is read."""

    format: str
    texts: tuple[Column, ...] = ()
    labels: Column | None = None
    header: bool = False
    separator: str = ""
    """The separator of several labels in one field; "" if a field is one label."""
    joined: bool = False
    """Whether the text columns are one text, joined by a blank, and not a pair."""
    group: Column | None = None
    """Of training data: the column of groups. Later files need not have it."""

    def __str__(self) -> str:
        parts = [self.format + (" with a header" if self.header else "")]
        if self.labels is not None:
            parts.append(
                f"label: {self.labels}" + (f' (several, separated by "{self.separator}")' if self.separator else "")
            )
        if self.texts:
            kind = "text" if len(self.texts) == 1 or self.joined else "texts"
            parts.append(f"{kind}: {' + '.join(map(str, self.texts))}" + (" (joined)" if self.joined else ""))
        return ", ".join(parts)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.texts if column.name]

    def choice(self, asked: DocumentChoice) -> DocumentChoice:
        header = self.header if self.texts and self.texts[0].number else None
        labels = "".join(_keys(filter(None, [self.labels])))
        return replace(self.remainder(asked), texts=_keys(self.texts), labels=labels, header=header)

    def remainder(self, asked: DocumentChoice) -> DocumentChoice:
        return replace(asked, separator=self.separator, joined=self.joined)


@dataclass(frozen=True, slots=True)
class PairLayout(Layout[PairChoice]):
    """How a file of pairs is read. Formats without columns have fixed places, which `about` describes."""

    format: str
    sources: tuple[Column, ...] = ()
    targets: tuple[Column, ...] = ()
    header: bool = False
    about: str = ""
    group: Column | None = None

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

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.sources if column.name]

    def choice(self, asked: PairChoice) -> PairChoice:
        return replace(asked, sources=_keys(self.sources), targets=_keys(self.targets) if asked.is_labeled else ())


def _keys(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name or str(column.number) for column in columns)


ExampleT = TypeVar("ExampleT", Document, Pair)
LayoutT = TypeVar("LayoutT", bound=Layout[Any])


class ExampleFormat(ABC, Generic[ExampleT, LayoutT, ChoiceT]):
    """A format of examples in a text file. That of an extension has the suffix of its name."""

    name: str
    has_columns = True
    """Whether the user may name columns."""

    @abstractmethod
    def layout(self, lines: Lines, choice: ChoiceT) -> LayoutT:
        """How the file is read, by `choice` and its first lines. Raises DataError if that cannot be decided."""

    def recognizes(self, rows: Sequence[str]) -> bool:
        """Return whether the first rows of a file, without blank ones and line ends, are of this format."""
        return False

    def encoding_of(self, path: Path, encoding: str) -> str:
        """Return the encoding of a file, for which the user names `encoding`."""
        return encoding

    @abstractmethod
    def read(self, lines: Lines, layout: LayoutT, *, is_labeled: bool) -> Iterator[ExampleT]:
        """The examples of the file in order, in constant memory; pairs without targets unless `is_labeled`. Texts may
        be empty.

        Raises DataError (file:line) for a record that is no example, and if `is_labeled` for a file without labels.
        """


class DocumentFormat(ExampleFormat[Document, DocumentLayout, DocumentChoice]):
    """A format of labeled texts."""

    def layout(self, lines: Lines, choice: DocumentChoice) -> DocumentLayout:
        return DocumentLayout(self.name)

    @abstractmethod
    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The document's record with these labels in place of its own, with `before` and its line end."""


PairFormat = ExampleFormat[Pair, PairLayout, PairChoice]
"""A format of pairs."""
