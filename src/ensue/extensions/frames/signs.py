"""Detection of series of frames by the suffix of the first file, or by the columns of a table."""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise, product
from pathlib import Path
from typing import Literal, NamedTuple

from ensue.data.detection.format_table import first_lines
from ensue.data.detection.pair_tables import HEADER_WORDS
from ensue.data.examples.document_columns import LABELS, TEXTS
from ensue.data.files import files_of
from ensue.data.lines import Lines
from ensue.data.records.quoting import detect_delimiter
from ensue.data.records.record import simplify
from ensue.data.records.tables import DIALECTS, Dialect
from ensue.data.row_formats import suffix
from ensue.parsing import toml_value

FRAME_SUFFIXES = {
    **dict.fromkeys((".wav", ".wave"), "sound"), **{suffix: suffix[1:] for suffix in (".npy", ".npz", ".safetensors")},
    ".ts": "ts", **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), "image"),
}  # fmt: skip
"""The kinds of files of frames by suffix, except tables, which are detected by their columns."""
FRAME_TABLES = {".csv", ".tsv", ".tab"}
IDX = re.compile(r"idx[1-9]")
"""Matches the part of a file name that marks an idx file, such as idx3."""
PATH = "path"
"""The column of paths in a table of paths."""
SERIES = "series"
"""The default column of a table of frames for the name of the series."""


def file_kind(path: Path) -> str:
    """Return the kind of a file of frames by its name; "" if unknown."""
    return "idx" if IDX.search(path.name) else FRAME_SUFFIXES.get(suffix(path.name), "")


MISSING_CELLS = {"", "nan", "na", "n/a", "null", "none", "?"}
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
"""Matches a number with commas between thousands, which may also be a number with a decimal comma."""
_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d{2})(?:[:.](\d{2}(?:[.,]\d+)?))? ?([AaPp]?)[Mm]?")
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y-%m")
_COMPACT_DATE = re.compile(r"(19|20)\d{6}")
_NO_DATE = "-"
"""The format of a column whose cells are not dates."""
_WORDS = HEADER_WORDS["frames"]
_SERIES_NAMES, _ORDER_NAMES, _TIME_NAMES = {*_WORDS["series"]}, {*_WORDS["order"]}, tuple(_WORDS["times"])
_INDEX_NAMES, _LABEL_NAMES = _SERIES_NAMES | {*_WORDS["rows"]}, (*LABELS, *_WORDS["labels"])
_TEXT_NAMES = {*(name for group in TEXTS for name in group), "word", "words", "token", "tokens", "form", "lemma"}
_MAX_CLASSES = 50
_MIN_VALUES = 12
"""The smallest number of values for which a row of a table is detected as a series."""


class TableLayout(NamedTuple):
    """The columns of a table of frames by their meaning; "" for a missing column. No `features`: all other columns."""

    time: str = ""
    labels: str = ""
    series: str = ""
    features: tuple[str, ...] = ()
    rows: Literal["frames", "series"] = "frames"

    def settings(self) -> Iterator[str]:
        """Yield the settings with which a recipe reads the table, except defaults."""
        columns = (("time", self.time, "time"), ("labels", self.labels, "label"), ("series", self.series, SERIES))
        yield from ["data.rows=series"] if self.rows == "series" else []
        yield from (f"data.{key}={toml_value(name)}" for key, name, default in columns if name not in ("", default))
        yield from [f"data.features={json.dumps(self.features, ensure_ascii=False)}"] if self.features else []

    def __str__(self) -> str:
        meanings = ((self.time, "time"), (self.labels, "label"), (self.series, "id of the series"))
        shown = [f"{name} as the {meaning}" for name, meaning in meanings if name]
        if self.rows == "series":
            shown[:1] = [f"{'column ' * self.labels.isdecimal()}{self.labels} as the label"]
        return f"{'a series in each row, ' * (self.rows == 'series')}with {', '.join(shown) or 'numbers alone'}"


def detection_reason(location: str | Path, encoding: str) -> str:
    """Return the reason why the data are detected as frames; "" for other data."""
    path = files_of(location)[0]
    content = file_kind(path)
    if content not in ("", "ts"):
        return f"by the name of {path.name}"
    if content == "ts":  # TypeScript files have the same suffix
        lines = first_lines(path, encoding=encoding)
        return "by its line @data" if any(line.strip().lower() == "@data" for line in lines) else ""
    rows = first_rows(path, encoding)
    names, *below = rows or [[]]
    if PATH in names:
        return f'by its column "{PATH}"' if below and file_kind(Path(below[0][names.index(PATH)])) else ""
    layout = detect_layout(rows) or detect_layout([names, *below[1:]])  # the second row may have units
    return str(layout) if layout else f'by its column "{SERIES}"' if SERIES in names else ""


def first_rows(path: Path, encoding: str) -> list[list[str]]:
    """Return the first rows of a table; [] for other files."""
    if suffix(path.name) not in FRAME_TABLES:
        return []
    head = first_lines(path, encoding=encoding)
    is_json = bool(head) and head[0].startswith("{")  # an extension may convert a table to JSON lines
    return [] if is_json else table_rows(Lines(head, str(path)))


def detect_layout(rows: Sequence[Sequence[str]]) -> TableLayout | None:
    """Return the layout of a table; None for a table with columns of text, without features, or below three rows."""
    if len(rows) < 3:
        return None
    if is_mostly_numbers(rows[0]):
        return _find_layout_without_header(list(zip(*rows, strict=True)))
    columns = {name: [row[column] for row in rows[1:]] for column, name in enumerate(rows[0]) if name}
    numbers = [name for name, cells in columns.items() if _are_numbers(cells)]
    text_columns = [name for name in columns if name not in numbers and any(columns[name])]
    times = [name for name in text_columns if detect_date_format(columns[name]) != _NO_DATE]
    clocks = [name for name in text_columns if all(map(_CLOCK.fullmatch, filter(None, columns[name])))]
    named_times = [name for name in numbers if simplify(name).startswith(_TIME_NAMES)]
    series = _find_series(columns, {*times, *clocks, *named_times})
    text_columns = [name for name in text_columns if name not in (*times, *clocks, series)]
    labels = _find_label(columns, [*text_columns, *numbers])
    others = [name for name in text_columns if name != labels]
    if any(not _are_classes(name, columns[name]) for name in others) or len(columns) - len(text_columns) <= len(others):
        return None
    stems = {name: name.rstrip("0123456789") for name in numbers if name != labels and name[-1].isdecimal()}
    stem = max(stems.values(), key=[*stems.values()].count, default="")
    if labels and len(values := tuple(name for name in stems if stems[name] == stem)) >= _MIN_VALUES:
        is_all = len(values) + 1 + bool(series) == len(columns)
        return TableLayout("", labels, series, () if is_all else values, "series")
    time = _find_time(columns, numbers, times, clocks, columns.get(series, []))
    indices = [name for name in numbers if simplify(name) in _INDEX_NAMES and len({*columns[name]}) == len(rows) - 1]
    special = {*time_columns(time, columns), labels, series}
    features = [name for name in numbers if name not in {*special, *indices}]
    is_all = {*features, *special} >= columns.keys()
    return TableLayout(time, labels, series, () if is_all else tuple(features)) if features else None


def _find_layout_without_header(columns: list[tuple[str, ...]]) -> TableLayout | None:
    others = [column for column in columns if not _are_numbers(column)]
    if len(others) > 1 or not all(_are_classes("", column) for column in others):
        return None
    for number in (0, len(columns) - 1) if len(columns) > _MIN_VALUES else ():
        column = columns[number]
        if len(set(column)) > 1 and _are_classes("", column) and others in ([], [column]):
            return TableLayout(labels=str(number + 1), rows="series")
    return TableLayout() if len(columns) != 2 or any("." in cell for column in columns for cell in column) else None


def _are_numbers(cells: Sequence[str]) -> bool:
    present = [cell for cell in cells if cell.lower() not in MISSING_CELLS]
    return bool(present) and sum(map(_is_number, present)) > 0.9 * len(present)


def _is_number(cell: str) -> bool:
    with suppress(ValueError):
        return parse_number(cell) == parse_number(cell)
    return False


def _are_classes(name: str, cells: Sequence[str]) -> bool:
    """Return whether cells may be labels: few distinct, short cells, in which all numbers are integers."""
    distinct = {cell for cell in cells if cell}
    are_few = 2 * len(distinct) <= len(cells) and len(distinct) <= _MAX_CLASSES
    is_long = sum(cell.count(" ") for cell in distinct) > 2 * len(distinct)
    are_integers = all(not _is_number(cell) or parse_number(cell) % 1 == 0 for cell in distinct)
    return are_few and are_integers and not is_long and simplify(name) not in _TEXT_NAMES


def _find_series(columns: Mapping[str, Sequence[str]], times: Collection[str]) -> str:
    """Return the column of series by its name or, if times repeat, a column whose groups have distinct times."""
    for name, cells in columns.items():
        is_named = simplify(name) in _SERIES_NAMES or re.search("[ _-]id$", name.casefold())
        if name == SERIES or (is_named and 2 * len(set(cells)) <= len(cells)):
            return name
    moments = [*zip(*(columns[name] for name in times), strict=True)]
    for name, cells in columns.items() if len({*moments}) < len(moments) else ():
        groups = {*zip(cells, moments, strict=True)}
        if name not in times and len(groups) == len(moments) and all(cells) and _are_classes(name, cells):
            return name
    return ""


def _find_label(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    candidates = [name for name in names if _are_classes(name, columns[name])]
    for group in _LABEL_NAMES:
        for name in candidates:
            if simplify(name) in group and not (name == "y" and "x" in columns):
                return name
    return next((name for name in reversed(candidates) if not _are_numbers(columns[name])), "")


def _find_time(
    columns: Mapping[str, Sequence[str]], numbers: Sequence[str], times: Sequence[str], clocks: Sequence[str],
    series: Sequence[str],
) -> str:  # fmt: skip
    for date, clock in product(times, clocks):
        moments = [" ".join(cells).strip() for cells in zip(columns[date], columns[clock], strict=True)]
        if detect_date_format(moments) != _NO_DATE:
            return f"{date},{clock}"
    named = [name for name in numbers if simplify(name).startswith(_TIME_NAMES) or simplify(name) in _ORDER_NAMES]
    for name in filter(columns.__contains__, ("time", *times, *named)):
        pairs = list(zip(series or [""] * len(columns[name]), columns[name], strict=True))
        is_certain = simplify(name) in _TIME_NAMES or name not in named or not all(map(_is_number, columns[name]))
        is_time = is_certain or all(a != b or parse_number(x) <= parse_number(y) for (a, x), (b, y) in pairwise(pairs))
        if is_time and 2 * len(set(pairs)) > len(pairs):
            return name
    return ""


def time_columns(time: str, names: Collection[str]) -> list[str]:
    """Return the column of times, or if `time` has a comma the columns of dates and of clock times."""
    return [time] if time in names else time.split(",")


def parse_number(cell: str) -> float:
    """Return the number in a cell with a decimal point or a decimal comma. Raises ValueError for other cells."""
    if "_" in cell:  # Python reads 1_2 as 12
        raise ValueError(cell)
    try:
        return float(cell)
    except ValueError:
        if not _DECIMAL_COMMA.fullmatch(cell):
            raise
        return float(cell.replace(".", "").replace(",", "."))


def is_mostly_numbers(cells: Sequence[str]) -> bool:
    """Return whether more than half of the cells are numbers, as in a table without a header."""
    return 2 * sum(map(_is_number, cells)) > len(cells)


def detect_date_format(cells: Sequence[str]) -> str:
    """Return the `strptime` format of dates; "" for ISO 8601 and for numbers; `_NO_DATE` for other cells.

    If several formats match, as for 1/2/2024, the result is the format with the smallest range of dates.
    """
    cells = [cell for cell in cells if cell.lower() not in MISSING_CELLS]
    if cells and all(map(_COMPACT_DATE.fullmatch, cells)):
        return "%Y%m%d"
    spans: dict[str, float] = {}
    for date_format in ("", *_DAYS):
        with suppress(ValueError, OverflowError):
            seconds = [parse_seconds(cell, date_format) for cell in cells]
            spans[date_format] = max(seconds) - min(seconds)
    return min(spans, key=spans.__getitem__, default=_NO_DATE)


def parse_seconds(cell: str, date_format: str) -> float:
    """Return a number, or the seconds from 1970 to a date (by default in UTC). Raises ValueError or OverflowError."""
    if date_format != "%Y%m%d" and _is_number(cell):
        if math.isinf(seconds := parse_number(cell)):
            raise ValueError(cell)
        return seconds
    if date_format in ("", _NO_DATE):
        moment = datetime.fromisoformat(cell)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    date, _, clock = cell.replace("T", " ").partition(" ")
    seconds = datetime.strptime(date, date_format).replace(tzinfo=UTC).timestamp()
    match = _CLOCK.fullmatch(clock.strip() or "0:00")
    if match is None:
        raise ValueError(cell)
    hours, minutes, seconds_text, half = match.groups()
    hour = int(hours) % 12 + 12 * (half in "pP") if half else int(hours)
    return seconds + 3600 * hour + 60 * int(minutes) + parse_number(seconds_text or "0")


def table_rows(lines: Lines) -> list[list[str]]:
    """Return the first rows of a table that have as many cells as the header."""
    rows = detect_dialect(lines).first_rows(lines)
    return [[value.strip() for value in row] for row in rows if len(row) == len(rows[0])]


def detect_dialect(lines: Lines) -> Dialect:
    """Return the dialect of a table, with tabs if the first line has a tab, else with commas or semicolons."""
    head = lines.numbered_head(100)
    if head and "\t" in head[0][1]:
        return DIALECTS[0]
    return next(dialect for dialect in DIALECTS if dialect.delimiter == detect_delimiter(head, lines.name))
