"""Readers of series in arrays, images and tables, and writers of series."""

import csv
import io
import math
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile, groupby, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import check_encoding, load_bytes
from ensue.data.lines import Lines
from ensue.errors import DataError, nearest
from ensue.extensions.frames import signs
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors, as_vectors
from ensue.notices import warn_once
from ensue.processor import memory

KEYS = ("frames", "lengths", "labels", "rate")
Arrays = Mapping[str, NDArray[Any]]


def read_numpy(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a `.npy` or `.npz` file. The format is detected by the content of the file."""
    yield from split(path, _check_names(path, _load_arrays(path)))


def read_safetensors(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a `.safetensors` file."""
    from safetensors.numpy import load  # noqa: PLC0415

    content = load_bytes(path)
    try:
        arrays = load(content)
    except Exception as error:  # safetensors raises errors of many kinds for damaged files
        raise DataError(f"damaged, or not a safetensors file ({error})", path) from None
    yield from split(path, _check_names(path, arrays))


def split(path: Path, arrays: Arrays) -> Iterator[Series]:
    """Yield the series in the arrays of a file. Raises DataError for shapes that do not match."""
    frames = as_vectors(arrays["frames"], str(path))
    labels = None if "labels" not in arrays else np.atleast_1d(arrays["labels"])
    series = _split_frames(path, frames, arrays.get("lengths"))
    counts = list(map(len, series))
    if labels is not None and (labels.ndim > 2 or labels.size not in (len(series), sum(counts))):
        expected = f"{len(series):,} (one for each series) or {sum(counts):,} (one for each frame)"
        raise DataError(f"labels of the shape {labels.shape}; expected {expected}", path)
    values = [] if labels is None else labels.reshape(-1).tolist()
    names = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
    per_frame = len(names) != len(series)
    ends = np.cumsum([0, *counts]) if per_frame else range(len(series) + 1)
    rate = _read_rate(path, arrays.get("rate"))
    for number, rows in enumerate(series):
        name = path.name if len(series) == 1 else f"{path.name}[{number}]"
        labels_of_series = tuple(names[ends[number] : ends[number + 1]])
        yield Series(name, rows, labels_of_series, per_frame and bool(names), rate, (str(path), None))


def _split_frames(path: Path, frames: NDArray[np.float32], lengths: NDArray[Any] | None) -> list[NDArray[np.float32]]:
    if frames.ndim == 1:
        frames = frames[:, None]
    if not (frames.ndim == 2 or (frames.ndim == 3 and lengths is None)):
        expected = "(T, d)" if lengths is not None else "(T, d), or (N, T, d) for several series"
        raise DataError(f"frames of the shape {frames.shape}; expected {expected}", path)
    if not frames.size:  # a damaged shape may have billions of empty series
        raise DataError(f"frames of the shape {frames.shape}: a series without frames", path)
    if lengths is None:
        return [frames] if frames.ndim == 2 else list(frames)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise DataError("lengths: expected integers (N,) above 0", path)
    if (total := int(lengths.sum(dtype=object))) != len(frames):
        raise DataError(f"lengths sum to {total:,} frames; expected {len(frames):,}", path)
    return np.split(frames, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _read_rate(path: Path, rate: NDArray[Any] | None) -> float:
    if rate is None:
        return 0.0
    if rate.size != 1 or rate.dtype.kind not in "iuf" or not 0 < float(rate.reshape(())) < np.inf:
        raise DataError("rate is not a number above 0", path)
    return float(rate.reshape(()))


def _check_names(path: Path, arrays: Arrays) -> Arrays:
    """Return arrays by `KEYS`. A single array has the frames. Raises DataError for an unknown or missing name."""
    if len(arrays) == 1 and "frames" not in arrays:
        return {"frames": next(iter(arrays.values()))}
    if unknown := sorted(set(arrays) - set(KEYS)):
        raise DataError(f'unknown array "{unknown[0]}"{nearest(unknown[0], KEYS)}; expected {", ".join(KEYS)}', path)
    if "frames" not in arrays:
        raise DataError('no array "frames"', path)
    return arrays


def _load_arrays(path: Path) -> Arrays:
    content = load_bytes(path)
    try:
        with warnings.catch_warnings():  # numpy warns of headers by Python 2, but reads them
            warnings.simplefilter("ignore", UserWarning)
            file = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(file, np.ndarray):
            return {"frames": file}
        size = sum(member.file_size for member in file.zip.infolist())
        if size <= memory() / 2:
            return {name: file[name] for name in file.files}
    except Exception as error:  # numpy raises errors of many kinds for damaged files
        raise DataError(f"damaged, or not a NumPy file ({error})", path) from None
    raise DataError(f"arrays of {size:,} bytes, more than half of this machine's memory", path)


WRITABLE_SUFFIXES = ".npz", ".npy", ".csv"


def check_writable(path: Path, *, others: Sequence[str] = ()) -> None:
    """Raise DataError unless the suffix of a path is in `WRITABLE_SUFFIXES` or in `others`."""
    known = (*WRITABLE_SUFFIXES, *others)
    if path.suffix not in known:
        message = f'frames are not written as "{path.suffix}"{nearest(path.suffix, known)}; known: {", ".join(known)}'
        raise DataError(message, path)


def encode_series(path: Path, series: Sequence[Vectors], *, columns: Sequence[str] = (), rate: float = 0.0) -> bytes:
    """Return the content of a file with this suffix, for one or more series (T, d).

    Raises DataError for an unknown suffix, or if the series for a `.npy` file have different lengths.
    """
    check_writable(path)
    if path.suffix == ".npy" and len(set(map(len, series))) > 1:
        raise DataError("a .npy file cannot hold series of different lengths; .npz can", path)
    file = io.BytesIO()
    if path.suffix == ".npy":
        np.save(file, series[0] if len(series) == 1 else np.stack(series))
    elif path.suffix == ".npz":
        rates: dict[str, Any] = {"rate": np.float64(rate)} if rate else {}
        np.savez(file, frames=np.concatenate(series), lengths=np.array(list(map(len, series))), **rates)
    else:
        table = csv.writer(text := io.StringIO(), lineterminator="\n")
        table.writerow([signs.SERIES, *(columns or (f"x{feature}" for feature in range(series[0].shape[1])))])
        for number, rows in enumerate(series):
            table.writerows([number, *(f"{value:.9g}" for value in frame)] for frame in rows.tolist())
        file.write(text.getvalue().encode())
    return file.getvalue()


IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
LABEL_FILE_NAMES = (("images", "labels"), ("idx3", "idx1"))
"""Pairs (a, b). If a is replaced by b, the name of a file of images becomes the name of its file of labels."""
GRAY_MODES = {"1", "L", "LA", "La"}
COLOR_MODES = {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"}


def read_idx(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the images (N, rows, columns) of an idx file, with labels from the file that `label_file` returns."""
    images = _read_idx(path)
    if images.ndim != 3:
        raise DataError(f"an array of {images.ndim} dimensions; expected images (N, rows, columns)", path)
    label_path = label_file(path)
    labels = _read_idx(label_path) if label_path is not None else None
    if labels is not None and (labels.shape != images.shape[:1] or labels.dtype.kind not in "iu"):
        raise DataError(f"{labels.dtype} of the shape {labels.shape}; expected {len(images):,} integers", label_path)
    scale = 255 if images.dtype == np.uint8 else 1
    for number, image in enumerate(images):
        label = () if labels is None else (str(int(labels[number])),)
        frames = as_vectors(image / scale, str(path))
        yield Series(f"{path.name}[{number}]", frames, label, place=(str(path), None), colors=1)


def label_file(path: Path) -> Path | None:
    """Return the file of labels, such as `t10k-labels-idx1-ubyte`, for a file of images; None without labels."""
    name = path.name
    for images, labels in LABEL_FILE_NAMES:
        name = name.replace(images, labels)
    label_path = path.with_name(name)
    return label_path if name != path.name and label_path.is_file() else None


def _read_idx(path: Path) -> NDArray[Any]:
    content = load_bytes(path)
    zeros, kind, dimensions = content[:2], content[2:3], content[3:4]
    if len(content) < 4 or zeros != b"\0\0" or kind[0] not in IDX_TYPES:
        raise DataError("damaged, or not an idx file", path)
    start = 4 + 4 * dimensions[0]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    dtype = np.dtype(IDX_TYPES[kind[0]])
    if len(shape) != dimensions[0] or len(content) - start != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{len(content):,} bytes do not match an idx file of the shape {shape}", path)
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def read_image(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield an image as a series of rows, (columns,) for a gray image or (columns · 3,) for a colored image."""
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError:
        raise DataError('images need Pillow: pip install "ensue[images]"', path) from None

    content = load_bytes(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of images that might exhaust the memory
            image: Any = Image.open(io.BytesIO(content))
            mode, pixels = image.mode, None
            if mode in GRAY_MODES | COLOR_MODES:
                pixels = np.asarray(image.convert("L" if mode in GRAY_MODES else "RGB"))
    except Exception as error:  # Pillow raises errors of many kinds for damaged files
        reason = f" ({error})" if "<" not in str(error) else ""  # "<" begins the address of an object
        raise DataError(f"damaged, or not an image{reason}", path) from None
    if pixels is None:
        raise DataError(f"an image of the mode {mode}; expected 8 bits for each color", path)
    frames = (pixels.reshape(len(pixels), -1) / 255).astype(np.float32)
    yield Series(path.name, frames, place=(str(path), None), colors=1 if pixels.ndim == 2 else 3)


MIN_STEP_SECONDS = 1e-12
"""The smallest time from a frame to the next frame."""
MAX_STEP_ERROR = 0.01
"""The largest relative error of a step in time, and of a rate."""
MIN_GAP_STEPS = 1.5
"""The smallest gap at which a series is split, as a multiple of the median step."""
_STAMPED = re.compile(r"\(([^()]*),([^(),]*)\)")
"""Matches `(time,value)` in a `.ts` file."""


class GapError(DataError):
    """The error for frames that are not evenly spaced in time."""


class Frame(NamedTuple):
    """A row of a table of frames."""

    line: int
    series: str
    label: str
    time: float | None
    features: list[float]
    group: str = ""
    time_text: str = ""


class Header(NamedTuple):
    """The indices of the columns in a table; None for a missing column."""

    series: int | None
    label: int | None
    time: tuple[int, ...]
    """The column of times, or of dates and of clock times."""
    group: int | None
    features: list[int]
    names: tuple[str, ...]


def read_table(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a table in the order of their first rows; a table without a column of series is one series.

    The rows of a series need not be adjacent, and are sorted by time. Raises DataError for a cell that is not a number,
    and for a gap in time if `data.gaps` is "refuse".
    """
    if reading.rows == "series":
        yield from _read_series_rows(path, reading)
        return
    sample, rows, numbers = _open_table(path, reading)
    header = _read_header(sample, reading, path)
    numbers.advice = _suggest_settings(sample)
    date_format = signs.detect_date_format([_join_time(row, header) for row in sample[1:]] if header.time else [])
    frames = (_read_frame(line, cells, header, numbers, date_format) for line, cells in islice(rows, 1, None))
    grouped: Iterable[tuple[str, Iterable[Frame]]] = groupby(frames, key=lambda frame: frame.series)
    if header.series is not None:
        names = [name for name, _ in groupby(cells[header.series] for _, cells in _open_table(path, reading)[1])]
        if len(set(names)) < len(names):  # otherwise only one series is in memory at a time
            joined: dict[str, list[Frame]] = {}
            for frame in frames:
                joined.setdefault(frame.series, []).append(frame)
            grouped = joined.items()
    for name, group in grouped:
        yield from _split_at_gaps(name, list(group), header, reading, path)


def _open_table(
    path: Path, reading: SeriesOptions
) -> "tuple[list[list[str]], Iterator[tuple[int, list[str]]], _NumberParser]":
    """Return the first rows of a table, the line and cells of each nonempty row, and a parser of numbers."""
    lines = Lines.of(path, encoding=check_encoding(reading.encoding))
    dialect, sample = signs.detect_dialect(lines), signs.table_rows(lines)
    rows = dialect.read(lines, header=False, needed=())
    cells = ((row.record.line, [dialect.value(field).strip() for field in row.values]) for row in rows)
    below = dropwhile(lambda item: bool(sample) and item[1] != sample[0], cells)  # skips a title above the header
    return sample, (item for item in below if any(item[1])), _NumberParser(path, dialect.delimiter == ",")


def _split_at_gaps(
    name: str, frames: list[Frame], header: Header, reading: SeriesOptions, path: Path
) -> Iterator[Series]:
    """Yield rows as one series, or with `data.gaps` = "split" as a series for each part between gaps in time."""
    times = [frame.time for frame in frames if frame.time is not None]
    if any(after < before for before, after in pairwise(times)):
        warn_once(f"unsorted {path}", f"{path}: rows are sorted by time, and so are the predicted labels")
        frames, times = sorted(frames, key=lambda frame: frame.time or 0.0), sorted(times)
    rate = _measure_rate(frames, path) if reading.gaps == "refuse" else 0.0
    ends = [0, len(frames)]
    if len(times) > 1 and reading.gaps == "split":
        steps = np.diff(times)
        median = float(np.median(steps))
        rate = 1 / median if median > MIN_STEP_SECONDS else 0.0
        ends[1:1] = (np.flatnonzero((steps <= 0) | (steps > MIN_GAP_STEPS * median)) + 1).tolist()
    for number, (start, end) in enumerate(pairwise(ends)):
        segment = frames[start:end]
        labels = tuple(frame.label for frame in segment) if header.label is not None else ()
        values = as_vectors(np.array([frame.features for frame in segment]), str(path))
        title, place = f"{name}[{number}]" if len(ends) > 2 else name, (str(path), segment[0].line)
        yield Series(title, values, labels, bool(labels), rate, place, header.names, group=segment[0].group)


def _read_series_rows(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a table with a series in each row. Missing values at the end of a row are padding."""
    sample, rows, numbers = _open_table(path, reading)
    first = sample[0] if sample else []
    is_header = not signs.is_mostly_numbers(first)
    names = first if is_header else [str(number) for number, _ in enumerate(first, 1)]
    _check_columns(reading, {reading.labels: "label"}, names, path)
    label, series, group = (
        names.index(name) if name in names else None for name in (reading.labels, reading.series, reading.group)
    )
    features = [names.index(name) for name in reading.features or filter(None, names)]
    features = [column for column in features if column not in (label, series, group)]
    for count, (line, cells) in enumerate(islice(rows, is_header, None)):
        values = [[numbers.parse(cells[column], names[column], line)] for column in features]
        frames = _drop_padding(values, path, line)
        labels = () if label is None or not cells[label] else (_format_class(cells[label]),)
        name, group_name = ("" if column is None else cells[column] for column in (series, group))
        yield Series(name or f"{path.name}[{count}]", frames, labels, place=(str(path), line), group=group_name)


def _drop_padding(values: Sequence[Sequence[float]], path: Path, line: int) -> Vectors:
    """Return frames without missing frames at the end."""
    present = np.flatnonzero(~np.isnan(np.array(values)).all(1))
    if not len(present):
        raise DataError("a series without values", path, line)
    return as_vectors(np.array(values[: int(present[-1]) + 1]), str(path))


def _format_class(cell: str) -> str:
    """Return a label, without decimals if it is an integer, such as 1 for 1.0000000e+00."""
    with suppress(ValueError, OverflowError):
        return str(int(float(cell))) if float(cell).is_integer() else cell
    return cell


def read_ts(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a `.ts` file of the UEA and UCR archives.

    A line has a series: dimensions separated by colons, and a label at the end. Raises DataError without a line
    `@data`, and for a line that does not match the header.
    """
    head: dict[str, str] = {}
    count, has_times = 0, False
    for line, text in Lines.of(path, encoding=check_encoding(reading.encoding)):
        key, _, value = text.strip().lower().partition(" ")
        if not key or key[0] in "#%":
            continue
        if "@data" not in head:
            head[key] = value.strip()
            if key[0] != "@":
                raise DataError(f'expected a line @data, found "{text.strip():.40}"', path, line)
            if key == "@targetlabel" and head[key].startswith("true"):
                raise DataError("regression targets (@targetLabel) are unsupported; expected class labels", path, line)
            has_times = head.get("@timestamps") == "true"
            continue
        dimensions, label = re.split(r"(?<=\)):" if has_times else ":", text.strip()), ""
        if head.get("@classlabel", "").startswith("true"):
            label = dimensions.pop().strip()
        numbers, rate = _NumberParser(path), 0.0
        cells = [dimension.split(",") for dimension in dimensions]
        if has_times:
            cells, rate = _unstamp(dimensions, reading, path, line)
        columns = [
            [numbers.parse(cell.strip(), f"dimension {number}", line) for cell in column]
            for number, column in enumerate(cells, 1)
        ]
        if len({len(column) for column in columns}) != 1:
            lengths = ", ".join(str(len(column)) for column in columns) or "no values"
            raise DataError(f"dimensions of {lengths}; expected values of one length before the label", path, line)
        frames = _drop_padding([*zip(*columns, strict=True)], path, line)
        yield Series(f"{path.name}[{count}]", frames, (label,) if label else (), rate=rate, place=(str(path), line))
        count += 1
    if "@data" not in head:
        raise DataError("no line @data: damaged, or not a file of the UEA and UCR archives", path)


def _unstamp(dimensions: Sequence[str], reading: SeriesOptions, path: Path, line: int) -> tuple[list[list[str]], float]:
    """Return the values in dimensions of `(time,value)`, such as 1.5 and 2.5 in (0,1.5),(1,2.5), and their rate."""
    if invalid := next((dimension for dimension in dimensions if _STAMPED.sub("", dimension).strip(", ")), ""):
        raise DataError(f'expected (time,value), found "{invalid:.40}"', path, line)
    stamps = [_STAMPED.findall(dimension) for dimension in dimensions]
    times = [[time.strip() for time, _ in stamp] for stamp in stamps] or [[]]
    if any(other != times[0] for other in times):
        raise DataError("the times of two dimensions differ; expected equal times", path, line)
    date_format = signs.detect_date_format(times[0])
    frames = [Frame(line, "", "", _parse_time(time, date_format, path, line), [], "", time) for time in times[0]]
    rate = _measure_rate(frames, path) if reading.gaps == "refuse" else 0.0
    return [[value for _, value in stamp] for stamp in stamps], rate


def _check_columns(reading: SeriesOptions, defaults: Mapping[str, str], names: Sequence[str], path: Path) -> None:
    """Raise DataError if a column is missing in the table, unless its name in the recipe is the default."""
    optional = {reading.labels, *signs.time_columns(reading.time, names)} if reading.may_lack_labels else set()
    required = [column for column, default in defaults.items() if column != default and column not in optional]
    for column in (*reading.features, *required):
        if column not in names:
            known = ", ".join(filter(None, names))
            raise DataError(f'no column "{column}"{nearest(column, names)}; there are {known}', path, 1)


def _read_header(rows: list[list[str]], reading: SeriesOptions, path: Path) -> Header:
    names = rows[0] if rows else []
    named = [name for name in names if name]  # a column without a name has the numbers of rows, as pandas writes them
    if not named or signs.is_mostly_numbers(names):
        advice = _suggest_settings(rows, "write a first row such as time,value,label")
        raise DataError(f"the first row has no names of columns; {advice}", path, 1)
    if len(set(named)) < len(named):
        raise DataError("the first row repeats a name; expected distinct column names", path, 1)
    times = signs.time_columns(reading.time, names)
    defaults = {reading.series: signs.SERIES, reading.labels: "label"} | dict.fromkeys(times, "time")
    _check_columns(reading, defaults, names, path)
    columns = {name: column for column, name in enumerate(names)}
    special = reading.series, reading.labels, reading.group, *times
    series, label, group, *time = map(columns.get, special)
    features = [columns[name] for name in reading.features or named if name not in special]
    if not features:
        raise DataError("no column of features", path, 1)
    times_columns = tuple([column for column in time if column is not None])
    return Header(series, label, times_columns, group, features, tuple(names[column] for column in features))


def _read_frame(line: int, cells: list[str], header: Header, numbers: "_NumberParser", date_format: str) -> Frame:
    path, columns = numbers.path, zip(header.features, header.names, strict=True)
    time_text = _join_time(cells, header)
    return Frame(
        line, path.name if header.series is None else cells[header.series],
        "" if header.label is None else cells[header.label],
        _parse_time(time_text, date_format, path, line) if header.time else None,
        [numbers.parse(cells[column], name, line) for column, name in columns],
        "" if header.group is None else cells[header.group], time_text,
    )  # fmt: skip


def _suggest_settings(rows: list[list[str]], otherwise: str = "--set data.features chooses columns") -> str:
    if layout := signs.detect_layout(rows):
        advice = " and ".join(shlex.join(["--set", setting]) for setting in layout.settings())
        return f"{advice} reads such a table" if advice else otherwise
    has_units = signs.detect_layout([*rows[:1], *rows[2:]]) is not None
    return "remove the line of units below the names of columns" if has_units else otherwise


class _NumberParser:
    """A parser of the numbers in a table. Either all numbers have decimal points or all have decimal commas."""

    def __init__(self, path: Path, is_comma_delimited: bool = True) -> None:
        self.path, self.is_comma_delimited = path, is_comma_delimited
        self.advice = ""
        self.first: dict[str, int] = {}
        """The first line with each decimal separator."""

    def parse(self, cell: str, name: str, line: int) -> float:
        """Return the number in a cell, NaN for a missing value. Raises DataError for a cell that is not a number."""
        if cell.lower() in signs.MISSING_CELLS:
            return float("nan")
        try:
            value = signs.parse_number(cell)
        except ValueError:
            problem = f'column "{name}": expected a number, found "{cell:.40}"{self.advice and "; "}{self.advice}'
            raise DataError(problem, self.path, line) from None
        separator = "," if "," in cell else "." if "." in cell else ""
        if separator and separator not in self.first:
            self.first[separator] = line
            if len(self.first) > 1:
                other = min(self.first.values())
                problem = f'column "{name}": "{cell:.40}" after another decimal separator in line {other}'
                raise DataError(f"{problem}; expected decimal points or decimal commas", self.path, line)
        if separator == "," and self.is_comma_delimited and signs.THOUSANDS.fullmatch(cell):
            problem = f'column "{name}": the comma in "{cell:.40}" may be a decimal comma or a thousands separator'
            raise DataError(f"{problem}; expected a decimal point", self.path, line)
        return value


def _join_time(cells: Sequence[str], header: Header) -> str:
    return " ".join([cells[column] for column in header.time]).strip()


def _parse_time(cell: str, date_format: str, path: Path, line: int) -> float:
    try:
        return signs.parse_seconds(cell, date_format)
    except (ValueError, OverflowError, OSError):
        problem = f'expected a time, as a number or as 2026-01-31T12:00:00; found "{cell:.40}"'
        raise DataError(problem, path, line) from None


def _measure_rate(frames: list[Frame], path: Path) -> float:
    """Return the frames per second from the times of frames; 0 for a single frame. Raises GapError for uneven times."""
    times = [frame.time for frame in frames if frame.time is not None]
    if len(times) < 2:
        return 0.0
    step = times[1] - times[0]
    for before, frame, start, time in zip(frames, frames[1:], times, times[1:], strict=False):
        if step < MIN_STEP_SECONDS or abs(time - start - step) > MAX_STEP_ERROR * abs(step):
            actual = f'"{frame.time_text}" is {time - start:g} s after "{before.time_text}" in line {before.line}'
            first_step = f"{step:g} s, as between the first two frames of the series"
            expected = "a time above 0" if step < MIN_STEP_SECONDS else first_step
            remedy = "--set data.gaps=split begins a new series after a gap, --set data.gaps=ignore ignores it"
            raise GapError(f"a gap in time: {actual}; expected {expected}; {remedy}", path, frame.line)
    return 1 / step
