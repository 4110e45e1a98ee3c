"""The pairs of files: of one, of a folder or glob, or of two aligned ones."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, zip_longest
from pathlib import Path
from statistics import median

from ensue.data.detection.format_table import ALIGNED, suffix
from ensue.data.detection.locations import aligned_paths
from ensue.data.files import Location, expanded, files_of, one_location
from ensue.data.lines import Lines
from ensue.data.pairs.formats import FORMATS, detect_lines
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout, checked_pair
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.records.record import Record, records, without_end
from ensue.data.sources import digest_of
from ensue.errors import DataError
from ensue.extensions.localization.tmx import declared_encoding

_MOST_REMEMBERED = 1 << 21
"""The place of missing lines is searched in files of up to so many lines."""


def read_aligned(opened: Callable[[], tuple[Lines, Lines]]) -> Iterator[Pair]:
    """A pair for each line of both; lines that are empty in both are skipped.

    Raises DataError for files of different lengths, and for a line that is empty in one.
    """
    source, target = opened()
    number = 0
    for number, (left, right) in enumerate(zip_longest(_texts(source), _texts(target)), 1):
        if left is None or right is None:
            raise _unequal(opened)
        if not left.strip() and not right.strip():
            continue
        if not left.strip() or not right.strip():
            _check_lengths(opened)
        yield checked_pair(Pair((left,), (right,), source.name, number), target.name)
    if not number:
        raise DataError("no lines", source.name)


def _texts(lines: Lines) -> Iterator[str]:
    return (without_end(record.text)[0] for record in _all(lines))


def _all(lines: Lines) -> Iterator[Record]:
    return records(lines, lines.name, empty=True)


def _check_lengths(opened: Callable[[], tuple[Lines, Lines]]) -> None:
    """Raises DataError if the lengths differ: an empty side is then the place of a missing line."""
    source, target = opened()
    if sum(1 for _ in source) != sum(1 for _ in target):
        raise _unequal(opened)


def _unequal(opened: Callable[[], tuple[Lines, Lines]]) -> DataError:
    """The error for files of different lengths, with the place where they part."""
    names = [lines.name for lines in opened()]
    lengths = [array("l", map(len, _texts(lines))) for lines in opened()]
    counts = [len(each) for each in lengths]
    short = counts[0] > counts[1]  # the place of the shorter
    missing = abs(counts[0] - counts[1])
    message = f"{counts[short]:,} lines, but {names[not short]} has {counts[not short]:,}"
    line = _first_empty(*lengths)
    if line:
        empty = names[lengths[1][line - 1] == 0]
        return DataError(f"{message}; line {line:,} is the first that is empty in only one ({empty})", names[short])
    if min(counts) and max(counts) <= _MOST_REMEMBERED:
        line = parting(lengths[short], lengths[not short]) + 1
        lines = "a line is" if missing == 1 else f"{missing:,} lines are"
        if line > counts[short]:
            message += f"; by their lengths {lines} missing at its end"
        else:
            message += f"; by their lengths {lines} missing at about line {line:,}"
    return DataError(message, names[short])


def _first_empty(left: Sequence[int], right: Sequence[int]) -> int:
    """The first line that is empty on one side only; 0 for none."""
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False), 1) if (a == 0) != (b == 0)), 0)


def parting(short: Sequence[int], long: Sequence[int]) -> int:
    """The line of `short` (from 0) before which lines of `long` are missing, if they are all at one place.

    The lengths of aligned lines have about the same ratio. For each place the cost is the sum of deviations from this
    ratio: the lines before it are compared with the same numbers, the lines after it with those
    `len(long) - len(short)` further on. The place of the lowest cost is taken.
    """
    shift = len(long) - len(short)
    before = _misfits(short, long)
    behind = _misfits(short, islice(long, shift, None))
    costs = accumulate((a - b for a, b in zip(before, behind, strict=True)), initial=0.0)
    return min(enumerate(costs), key=lambda item: (item[1], -item[0]))[0]


def _misfits(short: Sequence[int], long: Iterable[int]) -> list[float]:
    """The deviation of the logarithm of each ratio of lengths from the median."""
    ratios = [math.log((a + 1) / (b + 1)) for a, b in zip(short, long, strict=False)]
    usual = median(ratios)
    return [abs(ratio - usual) for ratio in ratios]


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
