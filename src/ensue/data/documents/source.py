"""The texts of whole files: each is read, and written with other labels, by its own columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ensue.data.decoding import checked_encoding
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS, class_of
from ensue.data.detection.locations import class_files, folder_format
from ensue.data.documents.document import Choice, Document, Layout
from ensue.data.documents.formats import detect_lines, no_groups, read_folders, read_lines, write
from ensue.data.files import Location, expanded, files_of, locations_in, one_location
from ensue.data.lines import KeptLines, Lines, missing_end
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError


class DocumentSource:
    """The documents of a file, of a folder's files, of a glob's matches, or of a stream's lines, in constant memory.

    What `choice` and `format` leave open is found for each file by itself. The columns of `like`, the layout of a run,
    are tried first, or else those of the first file. `labels` are the possible names of labels, if they are known.
    `layout` is that of the first file. Files can be iterated again, a stream cannot.

    Raises DataError before the first document: if something cannot be decided, with the setting that decides it; for
    files of several formats; for a file without a column that is read.
    """

    def __init__(
        self,
        location: Location | Lines,
        choice: Choice | None = None,
        *,
        format: str = "",
        like: Layout | None = None,
        encoding: str = "utf-8",
        labels: Collection[str] = (),
    ) -> None:
        self.choice, self.encoding = choice or Choice(), encoding
        self.rest = ""
        """The text after the last document that was read: empty lines, or a header without rows."""
        if not isinstance(location, Lines):
            location = one_location(location)
            format = format or self._format_of_folder(location, like)
        paths: Sequence[Path] | None = () if format == FOLDERS else None
        if not isinstance(location, Lines) and format == CLASS_FILES:
            paths = class_files(files_of(location))
        self.files = LabeledFiles(location, encoding, paths=paths)
        self.location = self.files.location
        self._layouts: dict[str, Layout] = {}
        self._rows: dict[str, list[str]] = {}
        """The first row of each table."""
        if format == FOLDERS and not isinstance(location, Lines):
            self.layout = Layout(FOLDERS)
            if self.choice.group:
                raise no_groups(FOLDERS, self.location)
            return
        self.files.check_text()

        def layout_of(lines: Lines, first: Layout | None) -> Layout:
            found = detect_lines(lines, self.choice, format=format, like=like or first, labels=labels)
            for dialect in DIALECTS:
                if dialect.name == found.format:
                    self._rows[lines.name] = dialect.first(lines)[0]
            return found

        arrays = format in ("", "json")
        self._layouts = self.files.formats(layout_of, lambda layout: layout.format, arrays=arrays)
        if not self._layouts:
            raise self.files.no_text()
        self.layout = next(iter(self._layouts.values()))

    def _format_of_folder(self, location: str | Path, like: Layout | None) -> str:
        """The format of a folder. File names are classes only if labels are wanted, or if the run read such files."""
        found = folder_format(location, encoding=checked_encoding(self.encoding))
        is_asked = self.choice.is_labeled or (like is not None and like.format == CLASS_FILES)
        has_columns = self.choice.texts or self.choice.labels
        return "" if found == CLASS_FILES and (has_columns or not is_asked) else found

    def __iter__(self) -> Iterator[Document]:
        """Raises DataError (file:line) for a record that is no document, and for a missing label if one is expected."""
        self.rest = missing = ""
        header: list[str] | None = None
        if self.layout.format == FOLDERS:
            for name in locations_in(self.location):
                yield from read_folders(expanded(name), encoding=self.encoding)
            return
        for of_file in self.files:
            lines, last = KeptLines(of_file), ""
            layout = self._layouts.get(lines.name, self.layout)
            self.rest += missing
            is_again = header is not None and self._rows.get(lines.name) == header
            for document in read_lines(lines, layout, is_labeled=self.choice.is_labeled):
                lines.forget()
                before = self.rest + ("" if is_again and not last else document.before)
                last = document.source
                yield document if before == document.before else replace(document, before=before)
                self.rest = ""
            self.rest += lines.kept() if last or not is_again else ""
            header = header or (self._rows.get(lines.name) if layout.header else None)
            missing = missing_end(self.rest or last)

    def labels_in_names(self) -> list[str]:
        """The label of each file that has it from its name or its folder, in their order."""
        if self.layout.format == FOLDERS:
            root = expanded(self.location)
            return [str(path.relative_to(root).parent) for path in files_of(root)]
        return [class_of(path.name) for path in self.files.paths] if self.layout.format == CLASS_FILES else []

    def as_one(self, records: Iterator[str], *, begins: bool = True) -> Iterator[str]:
        """The records, as they are written, as one file. Raises DataError for tables of different columns."""
        rows = iter(self._rows.items())
        first, row = next(rows, ("", []))
        for name, other in rows:
            has_header = self._layouts[first].header
            if has_header != self._layouts[name].header or (row != other if has_header else len(row) != len(other)):
                raise DataError(f"other columns than {first}; predict them one by one", name)
        return self.files.as_one(records, are_objects=self.layout.format == "json", begins=begins)

    def write(self, document: Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
        """The record of a document of this source with these labels and nothing else changed, and the text before it.

        There is one probability, or one for each label. The records of all documents, and then `rest`, are the
        files, with one header.
        """
        layout = self._layouts.get(document.path, self.layout)
        return write(document, layout, labels, probabilities)
