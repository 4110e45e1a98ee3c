"""The pairs of files: of one, of a folder or glob, or of two aligned ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ensue.data.decoding import checked_encoding
from ensue.data.detection.aligned_files import aligned_paths
from ensue.data.detection.format_names import ALIGNED, suffix
from ensue.data.files import common_format, expanded, files_of
from ensue.data.lines import Lines, is_blank
from ensue.data.pairs.aligned import read_aligned
from ensue.data.pairs.formats import FORMATS, detect_lines
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout, checked_pair
from ensue.data.pairs.tmx import declared_encoding
from ensue.data.records.record import sample
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
        self,
        location: str | Path | Lines,
        *,
        format: str = "",
        sources: Sequence[str] = (),
        targets: Sequence[str] = (),
        group: str = "",
        like: PairLayout | None = None,
        encoding: str = "utf-8",
        is_labeled: bool = True,
    ) -> None:
        self.choice = PairChoice(tuple(sources), tuple(targets), is_labeled, group)
        self.encoding = checked_encoding(encoding)
        self.location = location.name if isinstance(location, Lines) else str(location)
        self.paths: tuple[Path, ...] = ()
        self._files: dict[str, Callable[[], Lines]] = {}
        self._layouts: dict[str, PairLayout] = {}
        if isinstance(location, Lines):
            self._files[location.name] = lambda: location
        elif is_labeled and (aligned := aligned_paths(str(location))):
            self._open_aligned(aligned, format)
            return
        else:
            self.paths = files_of(location)
            self._files = {str(path): partial(_lines, path, self.encoding) for path in self.paths}
        self._find_layouts(format, like)

    def _open_aligned(self, names: tuple[str, str], format: str) -> None:
        choice = self.choice
        if format not in ("", ALIGNED) or choice.sources or choice.targets or choice.group:
            asked = {"format": format, "sources": choice.sources, "targets": choice.targets, "group": choice.group}
            what = f"data.{next(key for key, value in asked.items() if value)}"
            raise DataError(f"two files have lines, not columns; {what} is for one file", self.location)
        for name in names:
            if files_of(name) != (expanded(name),):
                raise DataError("aligned files are named one by one; found a folder or a glob", name)
        self.paths = tuple(map(expanded, names))
        self._files = {str(path): partial(Lines.of, path, encoding=self.encoding) for path in self.paths}
        self.layout = PairLayout(ALIGNED, about="source: a line of the first file, target: the same line of the second")

    def _find_layouts(self, format: str, like: PairLayout | None) -> None:
        for name, opened in self._files.items():
            lines = opened()
            if format in ("", "json"):
                lines.split_array()
            if len(self._files) == 1 or not all(is_blank(line) for _, line in sample(lines)):
                layout = detect_lines(lines, self.choice, format=format, like=like)
                self._layouts[name], like = layout, like or layout
                common_format({name: layout.format for name, layout in self._layouts.items()})
        if not self._layouts:
            raise DataError(f"{self.location}: no text in any of {len(self._files):,} files; all are blank")
        self.layout = next(iter(self._layouts.values()))

    def __iter__(self) -> Iterator[Pair]:
        """Raises DataError (file:line) for a record that is no pair, and if targets are read for an empty side."""
        if self.layout.format == ALIGNED:
            yield from read_aligned(self._open_both)
            return
        for name, opened in self._files.items():
            layout = self._layouts.get(name, self.layout)
            pairs = FORMATS[layout.format].read(opened(), layout, is_labeled=self.choice.is_labeled)
            yield from map(checked_pair, pairs) if self.choice.is_labeled else pairs

    def _open_both(self) -> tuple[Lines, Lines]:
        source, target = (Lines.of(path, encoding=self.encoding) for path in self.paths)
        return source, target

    def __repr__(self) -> str:
        return f"PairSource({self.location!r}, {self.layout})"


def _lines(path: Path, encoding: str) -> Lines:
    if encoding == "utf-8" and suffix(path.name) == ".tmx":  # XML says it itself
        encoding = declared_encoding(path)
    return Lines.of(path, encoding=encoding)
