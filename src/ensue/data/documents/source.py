"""The texts of whole files: each is read, and written with other labels, by its own columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ensue.data.decoding import checked_encoding
from ensue.data.detection.folders import class_files, folder_format
from ensue.data.detection.format_names import CLASS_FILES, FOLDERS
from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.folders import read_folders
from ensue.data.documents.formats import detect_lines, read_lines, write
from ensue.data.files import common_format, expanded
from ensue.data.lines import KeptLines, Lines, is_blank, missing_end
from ensue.data.records import sample
from ensue.data.sources import TextSource
from ensue.errors import DataError


class DocumentSource:
    """The documents of a file, of a folder's files, of a glob's matches, or of a stream's lines, in constant memory.

    What `choice` and `format` do not say, each file says itself. `like`: the layout of a run, whose columns are looked
    for first; without it those of the first file. `labels`: the names that a label can have, where they are known.
    `layout` is that of the first file. Files can be iterated again, a stream cannot.

    DataError where something cannot be told, naming the setting that says it; for files of several formats; for a file
    without a column that is read: all of it before the first document.
    """

    def __init__(
        self,
        location: str | Path | Lines,
        choice: Choice | None = None,
        *,
        format: str = "",
        like: Layout | None = None,
        encoding: str = "utf-8",
        labels: Collection[str] = (),
    ) -> None:
        self.choice, self.encoding = choice or Choice(), encoding
        self.location = location.name if isinstance(location, Lines) else str(location)
        self.rest = ""
        """What stands behind the last document that was read: empty lines, or a header over nothing."""
        self._files: dict[str, Callable[[], Lines]] = {}
        self._layouts: dict[str, Layout] = {}
        if isinstance(location, Lines):
            self._files[location.name] = lambda: location
        elif (format := format or self._format_of_folder(Path(location), like)) == FOLDERS:
            self.layout = Layout(FOLDERS)
            return
        else:
            paths: Sequence[Path] = TextSource(location, encoding=encoding).paths
            paths = class_files(paths) if format == CLASS_FILES else paths
            self._files = {str(path): partial(Lines.of, path, encoding=encoding) for path in paths}
        for name, opened in self._files.items():
            lines = opened()
            if format in ("", "json"):
                lines.split_array()
            if len(self._files) == 1 or not all(is_blank(line) for _, line in sample(lines)):
                layout = detect_lines(lines, self.choice, format=format, like=like, labels=labels)
                self._layouts[name], like = layout, like or layout
                common_format({name: layout.format for name, layout in self._layouts.items()})
        if not self._layouts:
            raise DataError(f"{self.location}: no text in any of {len(self._files):,} files; all are blank")
        self.layout = next(iter(self._layouts.values()))

    def _format_of_folder(self, location: Path, like: Layout | None) -> str:
        """What the folder itself shows. Files are named after classes only where labels are wanted, or were read so."""
        found = folder_format(location, encoding=checked_encoding(self.encoding))
        is_asked = self.choice.is_labeled or (like is not None and like.format == CLASS_FILES)
        has_columns = self.choice.texts or self.choice.labels
        return "" if found == CLASS_FILES and (has_columns or not is_asked) else found

    def __iter__(self) -> Iterator[Document]:
        """DataError (file:line) for what is no document, and for one without label where the choice says labeled."""
        self.rest = missing = ""
        if self.layout.format == FOLDERS:
            yield from read_folders(expanded(self.location), encoding=self.encoding)
            return
        for name, opened in self._files.items():
            lines, last = KeptLines(opened()), ""
            layout = self._layouts.get(name, self.layout)
            self.rest += missing
            for document in read_lines(lines, layout, is_labeled=self.choice.is_labeled):
                lines.forget()
                last = document.source
                yield replace(document, before=self.rest + document.before) if self.rest else document
                self.rest = ""
            self.rest += lines.kept()
            missing = missing_end(self.rest or last)

    def write(self, document: Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
        """The record of a document of this source with these labels, all else untouched, and what stood before it.

        One probability, or one for each label. The texts of all documents, and at last `rest`, are what the files are.
        """
        layout = self._layouts.get(document.path, self.layout)
        return write(document, layout, labels, probabilities)
