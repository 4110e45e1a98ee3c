"""The pairs of files: of one, of a folder or glob, or of two aligned ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ensue.data.detection.format_table import ALIGNED, suffix
from ensue.data.detection.locations import aligned_paths
from ensue.data.files import Location, expanded, files_of, one_location
from ensue.data.lines import Lines
from ensue.data.pairs.aligned import read_aligned
from ensue.data.pairs.formats import FORMATS, detect_lines
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout, checked_pair
from ensue.data.pairs.tmx import declared_encoding
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.sources import digest_of
from ensue.errors import DataError


class PairSource:
    """The pairs of a file, of a folder's files, of a glob's matches, or of a stream's lines, in constant memory.

    `location` may also be two aligned files with a comma between them: `train.en,train.de`. What `sources`, `targets`
    (names or numbers of columns, keys of JSON, languages of TMX) and `format` leave open is found for each file by
    itself. The columns of `like`, the layout of a run, are tried first, or else those of the first file. `group` is the
    column that says what belongs together, if it is read. `layout` is that of the first file. Files can be iterated
    again, a stream cannot.

    Unless `is_labeled`, targets are not read. A file without the signs of a format then has a source in each line, and
    an empty line is an empty source, so that there are as many pairs as lines.

    Raises DataError before the first pair: if something cannot be decided, with the setting that decides it; for files
    of several formats; for a file without a column that is read.
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
        self.files = LabeledFiles(location, encoding, paths=paths, encoding_of=_encoding_of)
        self.location = self.files.location
        self._layouts: dict[str, PairLayout] = {}
        if aligned:
            about = "source: a line of the first file, target: the same line of the second"
            self.layout = PairLayout(ALIGNED, about=about)
            return

        def layout_of(lines: Lines, first: PairLayout | None) -> PairLayout:
            return detect_lines(lines, self.choice, format=format, like=like or first)

        arrays = format in ("", "json")
        self._layouts = self.files.formats(layout_of, lambda layout: layout.format, arrays=arrays)
        if not self._layouts:
            raise self.files.no_text()
        self.layout = next(iter(self._layouts.values()))

    def _check_aligned(self, location: str, names: tuple[str, str], format: str) -> None:
        choice = self.choice
        if format not in ("", ALIGNED) or choice.sources or choice.targets or choice.group:
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
                yield from read_aligned(lambda first=first: self._open_both(first))  # type: ignore[misc]
            return
        for lines in self.files:
            layout = self._layouts.get(lines.name, self.layout)
            pairs = FORMATS[layout.format].read(lines, layout, is_labeled=self.choice.is_labeled)
            yield from map(self.checked, pairs) if self.choice.is_labeled else pairs

    def checked(self, pair: Pair) -> Pair:
        """A pair with targets, as it is given out. Raises DataError for one with an empty side."""
        return checked_pair(pair)

    def _open_both(self, first: int) -> tuple[Lines, Lines]:
        source, target = islice(self.files, first, first + 2)
        return source, target

    def __repr__(self) -> str:
        return f"PairSource({self.location!r}, {self.layout})"


def _encoding_of(path: Path, encoding: str) -> str:
    """XML says its encoding itself."""
    return declared_encoding(path) if encoding == "utf-8" and suffix(path.name) == ".tmx" else encoding
