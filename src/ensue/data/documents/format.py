"""The interface of a format of labeled texts. The formats are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.lines import Lines

LABEL, PROBABILITY = "label", "probability"
"""The names of what is added to a record that has no place for it."""


class DocumentFormat(ABC):
    """A way in which labeled texts stand in a text file."""

    @abstractmethod
    def layout(self, lines: Lines, choice: Choice) -> Layout:
        """What the file is taken for, from `choice` and its first lines. DataError where that cannot be told."""

    @abstractmethod
    def read(self, lines: Lines, layout: Layout, *, is_labeled: bool) -> Iterator[Document]:
        """The file's documents, in its order and in constant memory. DataError (file:line) for what is none.

        `is_labeled`: whether a file that has no place for labels is an error.
        """

    @abstractmethod
    def write(
        self, document: Document, layout: Layout, labels: Sequence[str], probabilities: Sequence[float] = ()
    ) -> str:
        """The document's record with these labels instead of its own, `before` and line end included."""


def split_labels(field: str, separator: str) -> tuple[str, ...]:
    """The labels of a field without blanks around them, each once."""
    if not separator:
        return (label,) if (label := field.strip()) else ()
    return tuple(dict.fromkeys(label for part in field.split(separator) if (label := part.strip())))


def shown_probabilities(probabilities: Sequence[float]) -> list[str]:
    """With as many digits as a person reads."""
    return [f"{probability:.4f}" for probability in probabilities]


def joined_text(texts: tuple[str, ...]) -> tuple[str]:
    """One text of several columns, joined by a blank; empty ones are left out."""
    return (" ".join(text for text in texts if text),)
