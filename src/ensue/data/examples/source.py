"""Sources of labeled texts and of pairs in files, whose layouts may differ, and in two aligned files."""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, Generic

from ensue.data.decoding import check_encoding
from ensue.data.detection.format_table import ALIGNED, CLASS_FILES, FOLDERS, PAIRS, class_of, format_by_suffix
from ensue.data.detection.locations import aligned_paths, class_files, folder_format
from ensue.data.examples import formats
from ensue.data.examples import layout as layouts
from ensue.data.examples.lines import read_folders
from ensue.data.files import Data, as_location, expanduser, files_of, locations_in
from ensue.data.lines import Lines, RecordingLines, missing_end
from ensue.data.records.labeled_files import SKIP_REMEDY, LabeledFiles, SkippedRows
from ensue.data.records.record import records, split_line_end
from ensue.data.records.tables import TABLES
from ensue.data.sources import digest_of_each
from ensue.errors import DataError, IncompleteError


class ExampleSource(ABC, Generic[layouts.ExampleT, layouts.LayoutT]):
    """The examples of a file, a folder, a glob or a stream, in constant memory.

    The layout of each file is detected, unless `format` or the user's choice of columns determines it. Detection
    prefers the columns of `like`, the layout of a run, or else the columns of the first file. `layout` is the layout of
    the first file.

    If `incomplete` is "refuse", a row without a label, source or target raises DataError. If it is "skip" or "count",
    such rows and empty labeled texts are skipped and counted in `skipped`; "skip" also warns of them. The constructor
    raises DataError for an ambiguous layout, different formats, and a file without a required column.
    """

    files: LabeledFiles
    layout: layouts.LayoutT
    choice: Any

    def __init__(self, files: LabeledFiles, incomplete: str) -> None:
        self.files, self.location = files, files.location
        self.incomplete, self.skips = incomplete, incomplete != "refuse"
        self.skipped = SkippedRows()
        """The counts of rows that were skipped in the last iteration."""
        self.layouts: dict[str, layouts.LayoutT] = {}
        """The layout of each file by its name. It is empty for aligned files and the format `FOLDERS`."""

    def _detect(self, detect: Callable[..., layouts.LayoutT], format: str, like: layouts.LayoutT | None) -> None:
        def layout_of(lines: Lines, first: layouts.LayoutT | None) -> layouts.LayoutT:
            layout: Any = detect(lines, format=format, like=like or first)
            return replace(layout, skips=self.skips)

        self.layouts = self.files.detect_formats(layout_of, lambda layout: layout.format, arrays=format in ("", "json"))
        if not self.layouts:
            raise DataError(f"{self.location}: no text in any of {len(self.files):,} files; all are blank")
        self.layout = next(iter(self.layouts.values()))

    @abstractmethod
    def _examples(self) -> Iterator[layouts.ExampleT]:
        """Yield the complete examples, and pass errors of incomplete examples to `_skip`."""

    def __iter__(self) -> Iterator[layouts.ExampleT]:
        """Yield the examples. Raises DataError (file:line) for an invalid or incomplete record."""
        self.skipped = SkippedRows()
        try:
            yield from self._examples()
        except IncompleteError as error:
            if not self.choice.is_labeled:
                raise
            raise DataError(f"{error.place}{error.message}; {SKIP_REMEDY}") from None
        if self.incomplete == "skip":
            self.skipped.warn(str(self.location))

    def _skip(self, error: IncompleteError) -> None:
        if not self.skips:
            raise error
        self.skipped.add(error)

    def _layout_of(self, name: str) -> layouts.LayoutT:
        return self.layouts.get(name, self.layout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}, {self.layout})"


class DocumentSource(ExampleSource[layouts.Document, layouts.DocumentLayout]):
    """The labeled texts of files, which can be written with other labels.

    `labels` are the possible labels, if known. A folder of classes has a folder or a file for each class.
    """

    def __init__(
        self, location: Data | Lines, choice: layouts.DocumentChoice | None = None, *, format: str = "",
        like: layouts.DocumentLayout | None = None, encoding: str = "utf-8", labels: Collection[str] = (),
        incomplete: str = "refuse",
    ) -> None:  # fmt: skip
        self.choice, self.encoding = choice or layouts.DocumentChoice(), encoding
        self.rest = ""
        """The text after the last document that was read, such as empty lines or a header without rows."""
        paths: Sequence[Path] | None = None
        if not isinstance(location, Lines):
            location = as_location(location)
            format = format or self._detect_folder_format(location, like)
            paths = () if format == FOLDERS else class_files(files_of(location)) if format == CLASS_FILES else None
        super().__init__(LabeledFiles(location, encoding, paths=paths), incomplete)
        self._rows: dict[str, list[str]] = {}
        """The first row of each table, by the name of the file."""
        if format == FOLDERS and not isinstance(location, Lines):
            self.layout = layouts.DocumentLayout(FOLDERS)
            if self.choice.group:
                raise formats.groups_error(FOLDERS, self.location)
            return
        self.files.check_text()
        self._detect(partial(self._detect_file, labels), format, like)

    def _detect_file(self, labels: Collection[str], lines: Lines, **known: Any) -> layouts.DocumentLayout:
        layout = formats.detect_documents(lines, self.choice, labels=labels, **known)
        if layout.format in TABLES:
            self._rows[lines.name] = TABLES[layout.format].first_rows(lines)[0]
        return layout

    def _detect_folder_format(self, location: str | Path, like: layouts.DocumentLayout | None) -> str:
        format = folder_format(location, encoding=check_encoding(self.encoding))
        is_possible = self.choice.is_labeled or (like is not None and like.format == CLASS_FILES)
        return "" if format == CLASS_FILES and (self.choice.names or not is_possible) else format

    def _examples(self) -> Iterator[layouts.Document]:
        self.rest = missing = ""
        header: list[str] | None = None
        if self.layout.format == FOLDERS:
            for name in locations_in(self.location):
                yield from filter(self._is_complete, read_folders(expanduser(name), encoding=self.encoding))
            return
        for file_lines in self.files:
            lines, last = RecordingLines(file_lines), ""
            layout = self._layout_of(lines.name)
            self.rest += missing
            repeats_header = header is not None and self._rows.get(lines.name) == header
            for document in formats.read_documents(lines, layout, is_labeled=self.choice.is_labeled and not self.skips):
                lines.clear()
                before = self.rest + ("" if repeats_header and not last else document.before)
                last = document.source
                if not self._is_complete(document):
                    self.rest = before + last
                    continue
                yield document if before == document.before else replace(document, before=before)
                self.rest = ""
            self.rest += lines.recorded_text() if last or not repeats_header else ""
            header = header or (self._rows.get(lines.name) if layout.header else None)
            missing = missing_end(self.rest or last)

    def _is_complete(self, document: layouts.Document) -> bool:
        has_labels = not document.unlabeled and (document.labels or self._layout_of(document.path).flags)
        missing = "" if not self.skips else "label" if not has_labels else "text" if document.is_empty else ""
        if missing:
            self._skip(IncompleteError("", document.path, document.line, missing=missing))
        return not missing

    def other_values(self, document: layouts.Document) -> dict[str, str]:
        """Return the values of a table's row by column, except for the text and the label."""
        layout, header = self._layout_of(document.path), self._rows.get(document.path, [])
        dialect = TABLES.get(layout.format)
        if dialect is None or not layout.header:
            return {}
        values = map(dialect.value, next(dialect.rows(Lines([document.source], ""), "")).values)
        used = {column.number for column in (*layout.texts, *layout.flags, layout.labels) if column is not None}
        columns = enumerate(zip(header, values, strict=False), 1)
        return {name: value for number, (name, value) in columns if number not in used}

    def labels_in_names(self) -> list[str]:
        """Return the label of each file if labels are names of files or folders; otherwise an empty list."""
        if self.layout.format == FOLDERS:
            roots = map(expanduser, locations_in(self.location))
            return [str(path.relative_to(root).parent) for root in roots for path in files_of(root)]
        return [class_of(path.name) for path in self.files.paths] if self.layout.format == CLASS_FILES else []

    def as_one(self, records: Iterator[str], *, begins: bool = True) -> Iterator[str]:
        """Join the written records of all files (`LabeledFiles.as_one`). Raises DataError for different columns."""
        rows = iter(self._rows.items())
        first, row = next(rows, ("", []))
        for name, other in rows:
            has_header = self.layouts[first].header
            if has_header != self.layouts[name].header or (row != other if has_header else len(row) != len(other)):
                raise DataError(f"different columns from {first}; predict the files one by one", name)
        return self.files.as_one(records, are_objects=self.layout.format == "json", begins=begins)

    def write(self, document: layouts.Document, labels: Sequence[str], probabilities: Sequence[float] = ()) -> str:
        """Return the record of a document with other labels, after `document.before`.

        `probabilities` has one probability of the set of labels, or one for each label. The concatenated records of all
        documents and `rest` are the text of all files, with one header.
        """
        return formats.write_document(document, self._layout_of(document.path), labels, probabilities)


class PairSource(ExampleSource[layouts.Pair, layouts.PairLayout]):
    """The pairs of files. `location` may also be two aligned files, separated by a comma: `train.en,train.de`.

    Unless `is_labeled`, targets are not read; if the format is not recognized, each line is a source and may be empty.
    `sources` and `targets` are names or numbers of columns, keys of JSON, or languages, by default detected; several
    columns of targets are references. `group` is the column of groups.
    """

    def __init__(
        self, location: Data | Lines, *, format: str = "", sources: Sequence[str] = (), targets: Sequence[str] = (),
        group: str = "", like: layouts.PairLayout | None = None, encoding: str = "utf-8", is_labeled: bool = True,
        incomplete: str = "refuse",
    ) -> None:  # fmt: skip
        self.choice = layouts.PairChoice(tuple(sources), tuple(targets), is_labeled, group)
        location = location if isinstance(location, Lines) else as_location(location, "the pairs")
        aligned = [] if isinstance(location, Lines) or not is_labeled else aligned_paths(location)
        for names in aligned:
            self._check_aligned(str(location), names, format)
        paths = tuple(expanduser(name) for names in aligned for name in names) if aligned else None
        super().__init__(LabeledFiles(location, encoding, paths=paths, encoding_of=_encoding_of), incomplete)
        if aligned:
            about = "source: a line of the first file, target: the same line of the second"
            self.layout = layouts.PairLayout(ALIGNED, about=about)
        else:
            self._detect(partial(formats.detect_pairs, choice=self.choice), format, like)

    def _check_aligned(self, location: str, names: tuple[str, str], format: str) -> None:
        choice = self.choice
        if format not in ("", ALIGNED) or choice.names or choice.group:
            settings = {"format": format, "sources": choice.sources, "targets": choice.targets, "group": choice.group}
            key = next(key for key, value in settings.items() if value)
            message = f"aligned files have no columns; data.{key} is for one file"
            raise DataError(message, location, options={f"data.{key}": f"--{key}"})
        for name in names:
            if files_of(name) != (expanduser(name),):
                raise DataError("expected a single file on each side of the comma, found a folder or a glob", name)

    def fingerprint(self) -> str:
        """Return a digest of the bytes of all files, in order."""
        return digest_of_each(self.files.paths)

    def _examples(self) -> Iterator[layouts.Pair]:
        if not self.choice.is_labeled:
            yield from self._pairs()
            return
        for pair in self._pairs():
            try:
                yield self.checked(pair)
            except IncompleteError as error:
                self._skip(error)

    def _pairs(self) -> Iterator[layouts.Pair]:
        if self.layout.format == ALIGNED:
            for first in range(0, len(self.files.paths), 2):
                yield from read_aligned(partial(islice, self.files, first, first + 2), skips=self.skips)
            return
        for lines in self.files:
            layout = self._layout_of(lines.name)
            yield from formats.pair_formats()[layout.format].read(lines, layout, is_labeled=self.choice.is_labeled)

    def checked(self, pair: layouts.Pair) -> layouts.Pair:
        """Return the pair without empty references. Raises IncompleteError if all sources or targets are empty."""
        return layouts.check_pair(pair)


def _encoding_of(path: Path, encoding: str) -> str:
    format = formats.pair_formats().get(format_by_suffix(PAIRS, path.name))
    return format.encoding_of(path, encoding) if format else encoding


_MAX_SEARCHED_LINES = 1 << 21
"""The maximum number of lines of aligned files in which the position of missing lines is searched for."""


def read_aligned(open_files: Callable[[], Iterable[Lines]], *, skips: bool = False) -> Iterator[layouts.Pair]:
    """Yield a pair for each line of both files, except lines that are empty in both files.

    `open_files` opens both files. Raises DataError if the files differ in length. Unless `skips`, raises DataError for
    a line that is empty in only one file.
    """
    source, target = open_files()
    number, is_checked = 0, False
    for number, (left, right) in enumerate(zip_longest(_texts(source), _texts(target)), 1):
        if left is None or right is None:
            raise _unequal_lengths(open_files)
        if not left.strip() and not right.strip():
            continue
        if not left.strip() or not right.strip():
            # with different numbers of lines, the error is a missing line, not an empty line
            if not is_checked and len({sum(1 for _ in lines) for lines in open_files()}) > 1:
                raise _unequal_lengths(open_files)
            is_checked = True
        pair = layouts.Pair((left,), (right,), source.name, number)
        yield pair if skips else layouts.check_pair(pair, target.name)
    if not number:
        raise DataError("no lines", source.name)


def _texts(lines: Lines) -> Iterator[str]:
    return (split_line_end(record.text)[0] for record in records(lines, lines.name, empty=True))


def _unequal_lengths(open_files: Callable[[], Iterable[Lines]]) -> DataError:
    names = [lines.name for lines in open_files()]
    lengths = [array("l", map(len, _texts(lines))) for lines in open_files()]
    counts = list(map(len, lengths))
    short = counts[0] > counts[1]  # the index of the shorter file
    missing = abs(counts[0] - counts[1])
    message = f"{counts[short]:,} lines, but {names[not short]} has {counts[not short]:,}"
    pairs = enumerate(zip(*lengths, strict=False), 1)
    line = next((number for number, (left, right) in pairs if (left == 0) != (right == 0)), 0)
    if line:
        empty = names[lengths[1][line - 1] == 0]
        return DataError(f"{message}; line {line:,} is the first that is empty in only one ({empty})", names[short])
    if min(counts) and max(counts) <= _MAX_SEARCHED_LINES:
        line = find_gap(lengths[short], lengths[not short]) + 1
        lines = "a line is" if missing == 1 else f"{missing:,} lines are"
        place = "its end" if line > counts[short] else f"about line {line:,}"
        message += f"; by their lengths {lines} missing at {place}"
    return DataError(message, names[short])


def find_gap(short: Sequence[int], long: Sequence[int]) -> int:
    """Return the index in `short` before which lines of `long` are missing, if all of them are missing at one index.

    `short` and `long` are the lengths of lines. Aligned lines have about the same ratio of lengths. The cost of an
    index is the sum of the deviations from this ratio, if line i is aligned with line i before the index, and with line
    i + `len(long) - len(short)` from the index on. The index with the lowest cost is returned.
    """
    shift = len(long) - len(short)
    unshifted = _deviations(short, long)
    shifted = _deviations(short, islice(long, shift, None))
    costs = accumulate((a - b for a, b in zip(unshifted, shifted, strict=True)), initial=0.0)
    return min(enumerate(costs), key=lambda item: (item[1], -item[0]))[0]


def _deviations(short: Sequence[int], long: Iterable[int]) -> list[float]:
    ratios = [math.log((a + 1) / (b + 1)) for a, b in zip(short, long, strict=False)]
    usual = median(ratios)
    return [abs(ratio - usual) for ratio in ratios]
