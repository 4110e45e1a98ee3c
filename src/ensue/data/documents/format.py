"""The interface of a format of labeled texts. The formats are in the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.lines import Lines

LABEL, PROBABILITY = "label", "probability"
"""The names of columns or keys that are added for labels and probabilities."""


class DocumentFormat(ABC):
    """A format of labeled texts in a text file."""

    @abstractmethod
    def layout(self, lines: Lines, choice: Choice) -> Layout:
        """How the file is read, by `choice` and its first lines. Raises DataError if that cannot be decided."""

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
