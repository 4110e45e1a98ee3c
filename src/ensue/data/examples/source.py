"""The labeled texts, or the pairs, of whole files: each file is read by the layout that it has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic

from ensue.data.decoding import checked_encoding
from ensue.data.detection.format_table import ALIGNED, CLASS_FILES, FOLDERS, PAIRS, by_suffix, class_of
from ensue.data.detection.locations import aligned_paths, class_files, folder_format
from ensue.data.examples.aligned import read_aligned
from ensue.data.examples.example import Document, Pair, checked_pair
from ensue.data.examples.formats import (
    detect_documents,
    detect_pairs,
    no_groups,
    pair_formats,
    read_documents,
    write_document,
)
from ensue.data.examples.layout import DocumentChoice, DocumentLayout, LayoutT, PairChoice, PairLayout
from ensue.data.examples.lines import read_folders
from ensue.data.files import Location, expanded, files_of, locations_in, one_location
from ensue.data.lines import KeptLines, Lines, missing_end
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.records.tables import DIALECTS
from ensue.data.sources import digest_of
from ensue.errors import DataError


class ExampleSource(Generic[LayoutT]):
    """The examples of a file, of a folder's files, of a glob's matches, or of a stream's lines, in constant memory.

    What the user's choice and `format` leave open is detected for each file by itself. The columns of `like`, the
    layout of a run, are tried first, or else those of the first file. `layout` is that of the first file. Files can be
    iterated again, a stream cannot.

    Raises DataError before the first example: if something cannot be decided, with the setting that decides it; for
    files of several formats; for a file without a column that is read.
    """

    files: LabeledFiles
    layout: LayoutT

    def __init__(self, files: LabeledFiles) -> None:
        self.files, self.location = files, files.location
        self.layouts: dict[str, LayoutT] = {}
        """The layout of each file by its name, if the files have records."""

    def _detect(self, detect: Callable[..., LayoutT], format: str, like: LayoutT | None) -> None:
        def layout_of(lines: Lines, first: LayoutT | None) -> LayoutT:
            return detect(lines, format=format, like=like or first)

        self.layouts = self.files.formats(layout_of, lambda layout: layout.format, arrays=format in ("", "json"))
        if not self.layouts:
            raise self.files.no_text()
        self.layout = next(iter(self.layouts.values()))

    def _layout_of(self, name: str) -> LayoutT:
        return self.layouts.get(name, self.layout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}, {self.layout})"


class DocumentSource(ExampleSource[DocumentLayout]):
    """The labeled texts of files, which can be written again with other labels.

    `labels` are the possible names of labels, if they are known. A location may be a folder with a folder, or a file,
    for each class.
    """

    def __init__(
        self,
        location: Location | Lines,
        choice: DocumentChoice | None = None,
        *,
        format: str = "",
        like: DocumentLayout | None = None,
        encoding: str = "utf-8",
        labels: Collection[str] = (),
    ) -> None:
        self.choice, self.encoding = choice or DocumentChoice(), encoding
        self.rest = ""
        """The text after the last document that was read: empty lines, or a header without rows."""
        paths: Sequence[Path] | None = None
        if not isinstance(location, Lines):
            location = one_location(location)
            format = format or self._format_of_folder(location, like)
            is_folder = format == FOLDERS
            paths = () if is_folder else class_files(files_of(location)) if format == CLASS_FILES else None
        super().__init__(LabeledFiles(location, encoding, paths=paths))
        self._rows: dict[str, list[str]] = {}
        """The first row of each table."""
        if format == FOLDERS and not isinstance(location, Lines):
            self.layout = DocumentLayout(FOLDERS)
            if self.choice.group:
                raise no_groups(FOLDERS, self.location)
            return
        self.files.check_text()
        self._detect(partial(self._detect_file, labels), format, like)

    def _detect_file(self, labels: Collection[str], lines: Lines, **known: Any) -> DocumentLayout:
        layout = detect_documents(lines, self.choice, labels=labels, **known)
        for dialect in DIALECTS:
            if dialect.name == layout.format:
                self._rows[lines.name] = dialect.first(lines)[0]
        return layout

    def _format_of_folder(self, location: str | Path, like: DocumentLayout | None) -> str:
        """The format of a folder. File names are classes only if labels are wanted, or if the run read such files."""
        format = folder_format(location, encoding=checked_encoding(self.encoding))
        is_asked = self.choice.is_labeled or (like is not None and like.format == CLASS_FILES)
        return "" if format == CLASS_FILES and (self.choice.names or not is_asked) else format

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
            layout = self._layout_of(lines.name)
            self.rest += missing
            is_again = header is not None and self._rows.get(lines.name) == header
            for document in read_documents(lines, layout, is_labeled=self.choice.is_labeled):
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
            has_header = self.layouts[first].header
            if has_header != self.layouts[name].header or (row != other if has_header else len(row) != len(other)):
                raise DataError(f"other columns than {first}; predict them one by one", name)
        return self.files.as_one(records, are_objects=self.layout.format == "json", begins=begins)

    def write(self, document: Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
        """The record of a document of this source with these labels and nothing else changed, and the text before it.

        There is one probability, or one for each label. The records of all documents, and then `rest`, are the
        files, with one header.
        """
        return write_document(document, self._layout_of(document.path), labels, probabilities)


class PairSource(ExampleSource[PairLayout]):
    """The pairs of files; `location` may also be two aligned files with a comma between them: `train.en,train.de`.

    Unless `is_labeled`, targets are not read. A file without the signs of a format then has a source in each line, and
    an empty line is an empty source, so that there are as many pairs as lines.

    Args:
        sources: names or numbers of columns, keys of JSON, or languages; detected if there are none.
        targets: those of the target; several are references.
        group: the column of groups, if it is read.
    """

    def __init__(
        self, location: Location | Lines, *, format: str = "", sources: Sequence[str] = (),
        targets: Sequence[str] = (), group: str = "", like: PairLayout | None = None, encoding: str = "utf-8",
        is_labeled: bool = True,
    ) -> None:  # fmt: skip
        self.choice = PairChoice(tuple(sources), tuple(targets), is_labeled, group)
        location = location if isinstance(location, Lines) else one_location(location, "the pairs")
        aligned = [] if isinstance(location, Lines) or not is_labeled else aligned_paths(location)
        for names in aligned:
            self._check_aligned(str(location), names, format)
        paths = tuple(expanded(name) for names in aligned for name in names) if aligned else None
        super().__init__(LabeledFiles(location, encoding, paths=paths, encoding_of=_encoding_of))
        if aligned:
            about = "source: a line of the first file, target: the same line of the second"
            self.layout = PairLayout(ALIGNED, about=about)
        else:
            self._detect(partial(detect_pairs, choice=self.choice), format, like)

    def _check_aligned(self, location: str, names: tuple[str, str], format: str) -> None:
        choice = self.choice
        if format not in ("", ALIGNED) or choice.names or choice.group:
            asked = {"format": format, "sources": choice.sources, "targets": choice.targets, "group": choice.group}
            key = next(key for key, value in asked.items() if value)
            message = f"two files have lines, not columns; data.{key} is for one file"
            raise DataError(message, location, options={f"data.{key}": f"--{key}"})
        for name in names:
            if files_of(name) != (expanded(name),):
                raise DataError("aligned files are named one by one; found a folder or a glob", name)

    def fingerprint(self) -> str:
        """A digest of the bytes of all files, in their order."""
        digests = [digest_of([path]) for path in self.files.paths]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def __iter__(self) -> Iterator[Pair]:
        """Raises DataError (file:line) for a record that is no pair, and if targets are read for an empty side."""
        if self.layout.format == ALIGNED:
            for first in range(0, len(self.files.paths), 2):
                yield from read_aligned(partial(self._open_both, first))
            return
        for lines in self.files:
            layout = self._layout_of(lines.name)
            pairs = pair_formats()[layout.format].read(lines, layout, is_labeled=self.choice.is_labeled)
            yield from map(self.checked, pairs) if self.choice.is_labeled else pairs

    def checked(self, pair: Pair) -> Pair:
        """A pair with targets, as it is given out. Raises DataError for one with an empty side."""
        return checked_pair(pair)

    def _open_both(self, first: int) -> tuple[Lines, Lines]:
        source, target = islice(self.files, first, first + 2)
        return source, target


def _encoding_of(path: Path, encoding: str) -> str:
    """The encoding of a file, which some formats declare."""
    format = pair_formats().get(by_suffix(PAIRS, path.name))
    return format.encoding_of(path, encoding) if format else encoding
