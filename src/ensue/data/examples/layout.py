"""Examples, columns chosen by the user, layouts of files of examples, and abstract base classes of formats."""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ensue.data.compact_texts import Ragged, RaggedRows
from ensue.data.division import SelectableList
from ensue.data.lines import Lines
from ensue.data.records.quoting import parse_list
from ensue.data.records.record import Column
from ensue.errors import IncompleteError, list_names
from ensue.parsing import parse_json
from ensue.stored import Stored


@dataclass(frozen=True, slots=True)
class Document:
    """A text or a pair of texts, with any number of labels.

    `source` is the record in the file, with its line end. `before` is the text between the previous record and this
    record, such as a header or empty lines. Writing a document changes only its labels.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    path: str = ""
    line: int = 0
    source: str = ""
    before: str = ""
    group: str = ""
    """The group of the document, such as its author; "" if no column of groups is read."""
    unlabeled: str = ""
    """The first indicator column without a value, in a file that writes false as 0 or no; "" if there is none."""

    @property
    def is_empty(self) -> bool:
        """Whether all texts of the document are white space."""
        return not any(text.strip() for text in self.texts)


class Pair(NamedTuple):
    """One or more source texts, and a target text, several references, or no target if it is unknown.

    `path` and `line` (from 1) are the place of the pair.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...] = ()
    path: str = ""
    line: int = 0
    group: str = ""
    """The group of the pair, such as its document; "" if no column of groups is read."""


class Pairs(SelectableList[Pair]):
    """A list of pairs."""

    @property
    def group_keys(self) -> list[Hashable]:
        """The group of each pair, or its source texts if it has no group."""
        return [pair.group or pair.sources for pair in self]

    def num_shared(self, other: "Pairs") -> int:
        """Return the number of pairs of `other` whose source also occurs in these pairs."""
        known_sources = {pair.sources for pair in self}
        return sum(pair.sources in known_sources for pair in other)


class StoredPairs(Sequence[Pair]):
    """A compact sequence of pairs, which are stored as JSON and parsed on access."""

    def __init__(self, rows: Ragged) -> None:
        self._rows = rows

    @staticmethod
    def rows_of(pairs: Iterable[Pair]) -> RaggedRows:
        """Return the pairs as rows of bytes."""
        return RaggedRows("B", (np.frombuffer(json.dumps(pair).encode(), np.uint8) for pair in pairs))

    def __getitem__(self, index: Any) -> Any:
        """Return the pair at an index, or the list of pairs in a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        sources, targets, *rest = parse_json(self._rows[range(len(self))[index]].tobytes())
        return Pair(tuple(sources), tuple(targets), *rest)

    def __len__(self) -> int:
        return len(self._rows)


def with_references(pairs: Iterable[Pair]) -> list[Pair]:
    """Merge pairs with equal sources, in the order of first appearance. The distinct targets become references."""
    first_pair: dict[tuple[str, ...], Pair] = {}
    targets: dict[tuple[str, ...], dict[str, None]] = {}
    for pair in pairs:
        first_pair.setdefault(pair.sources, pair)
        targets.setdefault(pair.sources, {}).update(dict.fromkeys(pair.targets))
    return [pair._replace(targets=tuple(targets[sources])) for sources, pair in first_pair.items()]


def check_pair(pair: Pair, target_path: str = "") -> Pair:
    """Return the pair without empty references. Raises IncompleteError if all sources or all targets are empty."""
    if not any(source.strip() for source in pair.sources):
        target = f", whose target is {_quote(pair.targets[0])}" if any(map(str.strip, pair.targets)) else ""
        raise IncompleteError(f"an empty source{target}", pair.path, pair.line, missing="source")
    targets = tuple(target for target in pair.targets if target.strip())
    if not targets:
        message = f"an empty target, whose source is {_quote(' '.join(pair.sources))}"
        raise IncompleteError(message, target_path or pair.path, pair.line, missing="target")
    return pair if len(targets) == len(pair.targets) else pair._replace(targets=targets)


def _quote(text: str) -> str:
    short = " ".join(text[:200].split())
    return f'"{short}"' if len(short) <= 40 else f'"{short[:37]}..."'


BOOLEAN_VALUES = (("0", "1"), ("0.0", "1.0"), ("false", "true"), ("False", "True"), ("FALSE", "TRUE"), ("no", "yes"),
              ("", "x"))  # fmt: skip
"""The values for false and true in an indicator column, which marks the texts that have a label."""


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """Return the distinct labels of a field: entries of a list, or parts between separators ("": one label)."""
    field = field.strip()
    entries = parse_list(field)
    if entries is None:
        entries = field.split(separator) if separator else [field]
    return tuple(dict.fromkeys(label for entry in entries if (label := str(entry).strip())))


class ColumnChoice(ABC):
    """The columns that the user chooses by names or numbers (from 1). Other columns are detected."""

    __slots__ = ()
    settings: ClassVar[str]
    options: ClassVar[str]
    """The settings, and the options of commands, that choose columns, for messages."""
    is_labeled: bool
    group: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The chosen columns, without the column of groups."""

    @property
    def has_names(self) -> bool:
        """Whether a column is chosen by name, so that the file must have a header."""
        return any(name and not name.isdecimal() for name in (*self.names, self.group))


@dataclass(frozen=True, slots=True)
class DocumentChoice(ColumnChoice):
    """The columns of labeled texts that the user chooses."""

    settings = "data.texts and data.labels"
    options = "--words and --labels"
    texts: tuple[str, ...] = ()
    """Names or numbers (from 1) of the columns: one text, a pair of texts, or if `joined`, the sections of one text."""
    labels: str = ""
    """The column of labels; or names, separated by commas, of indicator columns or of classes of multi-hot lists."""
    header: bool | None = None
    separator: str = ""
    joined: bool = False
    is_labeled: bool = True
    """Whether a file without labels is an error."""
    group: str = ""
    """The column of groups. The examples of a group are all in the training set or all in the validation set."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.texts, *filter(None, [self.labels]))


@dataclass(frozen=True, slots=True)
class PairChoice(ColumnChoice):
    """The columns of pairs that the user chooses, by name, number or language."""

    settings = "data.sources and data.targets"
    options = "--sources and --targets"
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    is_labeled: bool = True
    """Whether targets are read, so that a file without targets is an error."""
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.sources, *self.targets)


ChoiceT = TypeVar("ChoiceT", bound=ColumnChoice)


class Layout(Stored, ABC, Generic[ChoiceT]):
    """The layout of a file, which a run shows to the user and stores for later files of the same kind.

    In later files, columns with names (in a header or JSON) may be in another order.
    """

    unstored: ClassVar[frozenset[str]] = frozenset({"group", "skips"})
    format: str
    header: bool
    group: Column | None
    skips: bool
    """Whether incomplete rows are skipped, so that reading them does not raise an error."""

    @property
    def described_format(self) -> str:
        """The name of the format, with the header if there is one."""
        return self.format + (" with a header" if self.header else "")

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the columns of texts or sources. Columns without a name are omitted."""

    @abstractmethod
    def with_columns(self, chosen: ChoiceT) -> ChoiceT:
        """Return the user's choice with the columns of this layout as the chosen columns."""

    def with_options(self, chosen: ChoiceT) -> ChoiceT:
        """Return the user's choice with the settings of this layout that are not columns."""
        return chosen


@dataclass(frozen=True, slots=True)
class DocumentLayout(Layout[DocumentChoice]):
    """The layout of a file of labeled texts."""

    format: str
    texts: tuple[Column, ...] = ()
    labels: Column | None = None
    header: bool = False
    separator: str = ""
    """The separator of several labels in one field; "" if each field is one label."""
    joined: bool = False
    """Whether the columns of texts are joined by blanks to one text instead of being a pair."""
    group: Column | None = None
    """The column of groups in training data. Later files need not have this column."""
    skips: bool = False
    flags: tuple[Column, ...] = ()
    """Indicator columns in place of `labels`, one for each class; the names of the classes for multi-hot `labels`."""
    optional_keys = frozenset({"flags"})

    def __str__(self) -> str:
        kind = "text" if len(self.texts) == 1 or self.joined else "texts"
        texts = f"{kind}: {' + '.join(map(str, self.texts))}" + (" (joined)" if self.joined else "")
        return ", ".join(filter(None, [self.described_format, self.described_labels, texts if self.texts else ""]))

    @property
    def flag_names(self) -> tuple[str, ...]:
        """The class names of the indicator columns or multi-hot lists."""
        return _names_or_numbers(self.flags)

    @property
    def described_labels(self) -> str:
        """The columns of labels in words; "" without labels."""
        if self.flags:
            return f"labels: {list_names([*map(str, self.flags)])} (0 or 1)"
        several = f' (several, separated by "{self.separator}")' if self.separator else ""
        return f"label: {self.labels}{several}" if self.labels else ""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.texts if column.name]

    def with_columns(self, chosen: DocumentChoice) -> DocumentChoice:
        header = self.header if self.texts and self.texts[0].number else None
        labels = ",".join(_names_or_numbers(self.flags or filter(None, [self.labels])))
        return replace(self.with_options(chosen), texts=_names_or_numbers(self.texts), labels=labels, header=header)

    def with_options(self, chosen: DocumentChoice) -> DocumentChoice:
        return replace(chosen, separator=self.separator, joined=self.joined)


@dataclass(frozen=True, slots=True)
class PairLayout(Layout[PairChoice]):
    """The layout of a file of pairs. `about` describes the lines of a format without columns."""

    format: str
    sources: tuple[Column, ...] = ()
    targets: tuple[Column, ...] = ()
    header: bool = False
    about: str = ""
    group: Column | None = None
    skips: bool = False

    def __str__(self) -> str:
        sources = f"source: {' + '.join(map(str, self.sources))}" if self.sources else ""
        kind = "target" if len(self.targets) == 1 else "references"
        targets = f"{kind}: {', '.join(map(str, self.targets))}" if self.targets else ""
        return ", ".join(filter(None, [self.described_format, self.about, sources, targets]))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.sources if column.name]

    def with_columns(self, chosen: PairChoice) -> PairChoice:
        targets = _names_or_numbers(self.targets) if chosen.is_labeled else ()
        return replace(chosen, sources=_names_or_numbers(self.sources), targets=targets)


def _names_or_numbers(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(column.name or str(column.number) for column in columns)


ExampleT = TypeVar("ExampleT", Document, Pair)
LayoutT = TypeVar("LayoutT", bound=Layout[Any])


class ExampleFormat(ABC, Generic[ExampleT, LayoutT, ChoiceT]):
    """A format of examples in a text file. In an extension, the name of the format is the suffix of its files."""

    name: str
    has_columns = True
    """Whether the user may choose columns."""

    @abstractmethod
    def layout(self, lines: Lines, choice: ChoiceT) -> LayoutT:
        """Detect the layout from `choice` and the first lines. Raises DataError if it is ambiguous."""

    def recognizes(self, rows: Sequence[str]) -> bool:
        """Return whether a file has this format, given its first rows without blank rows and line ends."""
        return False

    def encoding_of(self, path: Path, encoding: str) -> str:
        """Return the encoding of a file, where `encoding` is the encoding chosen by the user."""
        return encoding

    @abstractmethod
    def read(self, lines: Lines, layout: LayoutT, *, is_labeled: bool) -> Iterator[ExampleT]:
        """Yield the examples in constant memory. Texts may be empty; targets of pairs are read only if `is_labeled`.

        Raises DataError (file:line) for an invalid record, and if `is_labeled` for a file without labels.
        """


class DocumentFormat(ExampleFormat[Document, DocumentLayout, DocumentChoice]):
    """A format of labeled texts."""

    def layout(self, lines: Lines, choice: DocumentChoice) -> DocumentLayout:
        return DocumentLayout(self.name)

    @abstractmethod
    def write(
        self, document: Document, layout: DocumentLayout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """Return the record of a document with other labels, including its line end, after `document.before`."""


PairFormat = ExampleFormat[Pair, PairLayout, PairChoice]
