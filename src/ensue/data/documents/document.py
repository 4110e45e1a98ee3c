"""A labeled text, the layout of its file, and the interface of its formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.stored import Stored


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
    """The group it belongs to, such as an author; "" if nobody asks."""

    @property
    def is_empty(self) -> bool:
        """Whether no text of it has anything but white space."""
        return not any(text.strip() for text in self.texts)


@dataclass(frozen=True, slots=True)
class Layout(Stored):
    """How a file is read. It is shown to the user, and kept in a run for later files of the same kind.

    If columns have names (a header, JSON), a later file may have them in another order.
    """

    unstored: ClassVar[frozenset[str]] = frozenset({"group"})
    format: str
    texts: tuple[Column, ...] = ()
    labels: Column | None = None
    header: bool = False
    separator: str = ""
    """The separator of several labels in one field; "" if a field is one label."""
    joined: bool = False
    """Whether the text columns are one text, joined by a blank, and not a pair."""
    group: Column | None = None
    """Of training data: the column that says what belongs together. Later files need not have it."""

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


@dataclass(frozen=True, slots=True)
class Choice:
    """The columns that the user names. The rest is detected."""

    texts: tuple[str, ...] = ()
    """Names or numbers (from 1) of one text, of the two of a pair, or of the parts of one text if `joined`."""
    labels: str = ""
    header: bool | None = None
    separator: str = ""
    joined: bool = False
    is_labeled: bool = True
    """Whether a file without labels is an error."""
    group: str = ""
    """The name or number of the column that says what belongs together."""


class DocumentFormat(ABC):
    """A format of labeled texts in a text file."""

    name: str

    def layout(self, lines: Lines, choice: Choice) -> Layout:
        """How the file is read, by `choice` and its first lines. Raises DataError if that cannot be decided."""
        return Layout(self.name)

    @abstractmethod
    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        """The documents of the file in order, in constant memory. Raises DataError (file:line) for a record that is no
        document.

        If `is_labeled`, a file without labels is an error.
        """

    @abstractmethod
    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The document's record with these labels in place of its own, with `before` and its line end."""


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """The distinct labels of a field, without blanks around them."""
    if not separator:
        return (label,) if (label := field.strip()) else ()
    return tuple(dict.fromkeys(label for part in field.split(separator) if (label := part.strip())))


def shown_probabilities(probabilities: Sequence[float]) -> list[str]:
    """Probabilities with four digits."""
    return [f"{probability:.4f}" for probability in probabilities]


def joined_text(texts: tuple[str, ...]) -> tuple[str]:
    """Several columns as one text, joined by blanks, without empty ones."""
    return (" ".join(text for text in texts if text),)
