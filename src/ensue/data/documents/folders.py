"""A folder for each class, with a file for each text. Hidden files are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ensue.data.decoding import checked_encoding, whole_text
from ensue.data.documents.document import Document, shown_probabilities
from ensue.data.files import visible
from ensue.errors import DataError


def read_folders(root: Path, *, encoding: str = "utf-8") -> Iterator[Document]:
    """The texts of `root/<class>/<file>`, class after class, each sorted by name; `.xz` and `.gz` are decompressed.

    Files in `root` itself are skipped. Raises DataError for a class without files, a folder within a class, and a text
    that cannot be read.
    """
    encoding = checked_encoding(encoding)
    folders = [path for path in visible(root) if path.is_dir()]
    if not folders:
        raise DataError("no folders; expected one for each class", root)
    for folder in folders:
        files = visible(folder)
        if not files:
            raise DataError(f'no file of the class "{folder.name}"', folder)
        for path in files:
            if path.is_dir():
                raise DataError("a folder within a class; expected files", path)
            yield Document((whole_text(path, encoding),), (folder.name,), str(path), 1)


def write_folders(document: Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
    """A line with the file's name, a tab and the labels."""
    values = [",".join(labels), *([",".join(shown_probabilities(probabilities))] if probabilities else [])]
    return "\t".join([document.path, *values]) + "\n"
