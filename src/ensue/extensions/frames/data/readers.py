"""Frames in arrays, images, and tables."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import checked_encoding, whole_bytes
from ensue.data.lines import Lines
from ensue.errors import DataError, nearest
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors, as_vectors
from ensue.extensions.frames.signs import SERIES, dialect_of
from ensue.processor import memory

KEYS = ("frames", "lengths", "labels", "rate")
Arrays = Mapping[str, NDArray[Any]]


def read_numpy(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a `.npy` file, which has no labels, or of a `.npz` file; its content says which it is."""
    yield from split(path, _named(path, _loaded(path)))


def read_safetensors(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a `.safetensors` file."""
    from safetensors.numpy import load  # noqa: PLC0415

    content = whole_bytes(path)
    try:
        arrays = load(content)
    except Exception as error:  # its reader raises errors of many kinds for damaged files
        raise DataError(f"damaged, or no safetensors file ({error})", path) from None
    yield from split(path, _named(path, arrays))


def split(path: Path, arrays: Arrays) -> Iterator[Series]:
    """Yield the series in the arrays of a file. Raises DataError for shapes that do not go together."""
    frames = as_vectors(arrays["frames"], str(path))
    labels = None if "labels" not in arrays else np.atleast_1d(arrays["labels"])
    parts = _parts(path, frames, arrays.get("lengths"))
    counts = [len(part) for part in parts]
    if labels is not None and (labels.ndim > 2 or labels.size not in (len(parts), sum(counts))):
        expected = f"{len(parts):,} (one for each series) or {sum(counts):,} (one for each frame)"
        raise DataError(f"labels of the shape {labels.shape}; expected {expected}", path)
    values = [] if labels is None else labels.reshape(-1).tolist()
    names = [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]
    per_frame = len(names) != len(parts)
    ends = np.cumsum([0, *counts]) if per_frame else range(len(parts) + 1)
    rate = _rate_of_array(path, arrays.get("rate"))
    for number, part in enumerate(parts):
        name = path.name if len(parts) == 1 else f"{path.name}[{number}]"
        chosen = tuple(names[ends[number] : ends[number + 1]])
        yield Series(name, part, chosen, per_frame and bool(names), rate, (str(path), None))


def _parts(path: Path, frames: NDArray[np.float32], lengths: NDArray[Any] | None) -> list[NDArray[np.float32]]:
    if frames.ndim == 1:
        frames = frames[:, None]
    if not (frames.ndim == 2 or (frames.ndim == 3 and lengths is None)):
        expected = "(T, d)" if lengths is not None else "(T, d), or (N, T, d) for several series"
        raise DataError(f"frames of the shape {frames.shape}; expected {expected}", path)
    if not frames.size:  # of which there may be billions
        raise DataError(f"frames of the shape {frames.shape}: a series without frames", path)
    if lengths is None:
        return [frames] if frames.ndim == 2 else list(frames)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 1).any():
        raise DataError("lengths are not whole numbers (N,) above 0", path)
    if (total := int(lengths.sum(dtype=object))) != len(frames):
        raise DataError(f"lengths of {total:,} frames in all; there are {len(frames):,}", path)
    return np.split(frames, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _rate_of_array(path: Path, rate: NDArray[Any] | None) -> float:
    if rate is None:
        return 0.0
    if rate.size != 1 or rate.dtype.kind not in "iuf" or not 0 < float(rate.reshape(())) < np.inf:
        raise DataError("rate is not a number above 0", path)
    return float(rate.reshape(()))


def _named(path: Path, arrays: Arrays) -> Arrays:
    """Return the arrays by their keys; a single one is that of the frames."""
    if len(arrays) == 1 and "frames" not in arrays:
        return {"frames": next(iter(arrays.values()))}
    if unknown := sorted(set(arrays) - set(KEYS)):
        raise DataError(f'an array "{unknown[0]}"{nearest(unknown[0], KEYS)}; expected {", ".join(KEYS)}', path)
    if "frames" not in arrays:
        raise DataError("no array of frames in it", path)
    return arrays


def _loaded(path: Path) -> Arrays:
    content = whole_bytes(path)
    try:
        with warnings.catch_warnings():  # of headers as Python 2 wrote them, which are read
            warnings.simplefilter("ignore", UserWarning)
            loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"frames": loaded}
        size = sum(member.file_size for member in loaded.zip.infolist())
        if size <= memory() / 2:
            return {name: loaded[name] for name in loaded.files}
    except Exception as error:  # numpy's reader raises errors of many kinds for damaged files
        raise DataError(f"damaged, or no file of numpy ({error})", path) from None
    raise DataError(f"arrays of {size:,} bytes, more than half of this machine's memory", path)


def _npz(series: Sequence[Vectors], columns: Sequence[str], rate: float) -> bytes:
    file = io.BytesIO()
    known: dict[str, Any] = {"rate": np.float64(rate)} if rate else {}
    np.savez(file, frames=np.concatenate(series), lengths=np.array([len(one) for one in series]), **known)
    return file.getvalue()


def _npy(series: Sequence[Vectors], columns: Sequence[str], rate: float) -> bytes:
    file = io.BytesIO()
    np.save(file, series[0] if len(series) == 1 else np.stack(series))
    return file.getvalue()


def _csv(series: Sequence[Vectors], columns: Sequence[str], rate: float) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([SERIES, *(columns or (f"x{feature}" for feature in range(series[0].shape[1])))])
    for number, one in enumerate(series):
        table.writerows([number, *(f"{value:.9g}" for value in frame)] for frame in one.tolist())
    return text.getvalue().encode()


WRITERS: dict[str, Callable[[Sequence[Vectors], Sequence[str], float], bytes]] = {
    ".npz": _npz, ".npy": _npy, ".csv": _csv
}  # fmt: skip


def check_writable(path: Path, *, others: Sequence[str] = ()) -> None:
    """Raise DataError for a suffix that names no format of frames, and none of `others`."""
    known = (*WRITERS, *others)
    if path.suffix not in known:
        message = f'frames are not written as "{path.suffix}"{nearest(path.suffix, known)}; known: {", ".join(known)}'
        raise DataError(message, path)


def content_of(path: Path, series: Sequence[Vectors], *, columns: Sequence[str] = (), rate: float = 0.0) -> bytes:
    """Return the content of a file with this suffix, for one or more series (T, d).

    Raises:
        DataError: The suffix is unknown, or the series for a `.npy` file have different lengths.
    """
    check_writable(path)
    if path.suffix == ".npy" and len({len(one) for one in series}) > 1:
        raise DataError("a .npy file has no room for series of different lengths; .npz has", path)
    return WRITERS[path.suffix](series, columns, rate)


IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
LABEL_FILE_NAMES = (("images", "labels"), ("idx3", "idx1"))
"""Parts of the name of a file of images, and the parts in their place in the name of its labels."""
GRAY_MODES = {"1", "L", "LA", "La"}
COLOR_MODES = {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"}


def read_idx(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the images (N, rows, columns) of an idx file, with the labels of the file beside it, if there is one."""
    images = _read_idx(path)
    if images.ndim != 3:
        raise DataError(f"an array of {images.ndim} dimensions; expected images (N, rows, columns)", path)
    beside = labels_beside(path)
    labels = _read_idx(beside) if beside is not None else None
    if labels is not None and (labels.shape != images.shape[:1] or labels.dtype.kind not in "iu"):
        raise DataError(f"{labels.dtype} of the shape {labels.shape}; expected {len(images):,} whole numbers", beside)
    scale = 255 if images.dtype == np.uint8 else 1
    for number, image in enumerate(images):
        label = () if labels is None else (str(int(labels[number])),)
        frames = as_vectors(image / scale, str(path))
        yield Series(f"{path.name}[{number}]", frames, label, place=(str(path), None), colors=1)


def labels_beside(path: Path) -> Path | None:
    """Return the file of labels of a file of images, such as `t10k-labels-idx1-ubyte`; None without one."""
    name = path.name
    for of_images, of_labels in LABEL_FILE_NAMES:
        name = name.replace(of_images, of_labels)
    beside = path.with_name(name)
    return beside if name != path.name and beside.is_file() else None


def _read_idx(path: Path) -> NDArray[Any]:
    content = whole_bytes(path)
    zeros, kind, dimensions = content[:2], content[2:3], content[3:4]
    if len(content) < 4 or zeros != b"\0\0" or kind[0] not in IDX_TYPES:
        raise DataError("damaged, or no idx file", path)
    start = 4 + 4 * dimensions[0]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    dtype = np.dtype(IDX_TYPES[kind[0]])
    if len(shape) != dimensions[0] or len(content) - start != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{len(content):,} bytes, which an idx file of the shape {shape} has not", path)
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def read_image(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the rows of an image, each (columns,) if it is gray, or (columns · 3,) if it has colors."""
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError:
        raise DataError('images need Pillow: pip install "ensue[images]"', path) from None

    content = whole_bytes(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of images so large that they may be meant to fill the memory
            image: Any = Image.open(io.BytesIO(content))
            mode = image.mode
            pixels = (
                np.asarray(image.convert("L" if mode in GRAY_MODES else "RGB"))
                if mode in GRAY_MODES | COLOR_MODES
                else None
            )
    except Exception as error:  # Pillow raises errors of many kinds for damaged files
        reason = f" ({error})" if "<" not in str(error) else ""  # which names an object in memory
        raise DataError(f"damaged, or no image{reason}", path) from None
    if pixels is None:
        raise DataError(f"an image of the mode {mode}; expected 8 bits for each color", path)
    frames = (pixels.reshape(len(pixels), -1) / 255).astype(np.float32)
    yield Series(path.name, frames, place=(str(path), None), colors=1 if pixels.ndim == 2 else 3)


MISSING_CELLS = {"", "nan", "na", "n/a", "null", "none", "?"}
MIN_STEP_SECONDS = 1e-12
"""Seconds from a frame to the next, which may not be fewer."""
MAX_STEP_ERROR = 0.01
"""By which share of a step the time of a frame may be off."""


class Frame(NamedTuple):
    """A row: its line, the name of its series, its label, its time, its features, and its group."""

    line: int
    series: str
    label: str
    time: float | None
    features: list[float]
    group: str = ""


class Header(NamedTuple):
    """The places of the columns; None for a missing column."""

    series: int | None
    label: int | None
    time: int | None
    group: int | None
    features: list[int]
    names: tuple[str, ...]


def read_table(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a table, one after another. Without a column of series the table is one series.

    Raises:
        DataError: A cell is no number, a series goes on after another one, or there is a gap in time; with the line.
    """
    lines = Lines.of(path, encoding=checked_encoding(reading.encoding))
    dialect = dialect_of(lines)
    header = _header(dialect.first(lines), reading, path)
    rows = (
        _frame(row.record.line, [dialect.value(field).strip() for field in row.values], header, path)
        for row in dialect.read(lines, header=True, needed=())
    )
    seen: set[str] = set()
    for name, group in groupby(rows, key=lambda frame: frame.series):
        frames = list(group)
        if name in seen:
            raise DataError(f'"{name}" goes on after another series; sort the rows by it', path, frames[0].line)
        seen.add(name)
        labels = tuple(frame.label for frame in frames) if header.label is not None else ()
        yield Series(
            name, as_vectors(np.array([frame.features for frame in frames]), str(path)), labels, bool(labels),
            _rate_of_table(frames, path), (str(path), frames[0].line), header.names, group=frames[0].group,
        )  # fmt: skip


def _header(rows: list[list[str]], reading: SeriesOptions, path: Path) -> Header:
    names = [name.strip() for name in rows[0]] if rows else []
    if len(set(names)) < len(names) or "" in names:
        raise DataError("the first row has a name twice, or none; expected the names of the columns", path, 1)
    if not names or all(_is_number(name) for name in names):
        raise DataError("the first row has no names of columns", path, 1)
    for asked, usual in ((reading.series, SERIES), (reading.labels, "label"), (reading.time, "time")):
        if asked != usual and asked not in names:
            raise DataError(f'no column "{asked}"{nearest(asked, names)}; there are {", ".join(names)}', path, 1)
    places = {name: place for place, name in enumerate(names)}
    series, label, time, group = (
        places.get(name) for name in (reading.series, reading.labels, reading.time, reading.group)
    )
    features = [place for place in range(len(names)) if place not in (series, label, time, group)]
    if not features:
        raise DataError("no column of features", path, 1)
    return Header(series, label, time, group, features, tuple(names[place] for place in features))


def _frame(line: int, cells: list[str], header: Header, path: Path) -> Frame:
    return Frame(
        line,
        path.name if header.series is None else cells[header.series],
        "" if header.label is None else cells[header.label],
        None if header.time is None else _time(cells[header.time], path, line),
        [
            _number(cells[place], name, path, line)
            for place, name in zip(header.features, header.names, strict=True)
        ],
        "" if header.group is None else cells[header.group],
    )  # fmt: skip


def _number(cell: str, name: str, path: Path, line: int) -> float:
    if cell.lower() in MISSING_CELLS:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise DataError(f'column "{name}": expected a number, found "{cell:.40}"', path, line) from None


def _is_number(cell: str) -> bool:
    try:
        return float(cell) == float(cell)
    except ValueError:
        return False


def _time(cell: str, path: Path, line: int) -> float:
    """Seconds, as a number or as a date with a time, which is UTC unless it says otherwise: no hour comes twice."""
    try:
        if _is_number(cell):
            if math.isinf(seconds := float(cell)):
                raise ValueError(cell)
            return seconds
        date = datetime.fromisoformat(cell)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise DataError(
            f'expected a time, as a number or as 2026-01-31T12:00:00; found "{cell:.40}"', path, line
        ) from None


def _rate_of_table(frames: list[Frame], path: Path) -> float:
    """Return the frames per second by the column of time; 0 without such a column.

    Raises:
        DataError: The frames are not evenly spaced.
    """
    times = [frame.time for frame in frames if frame.time is not None]
    if len(times) < 2:
        return 0.0
    step = times[1] - times[0]
    for frame, before, time in zip(frames[1:], times, times[1:], strict=False):
        if step < MIN_STEP_SECONDS or abs(time - before - step) > MAX_STEP_ERROR * abs(step):
            actual = f"{time - before:g} after the frame before"
            usual = f"{step:g}, as between the first two frames of the series"
            expected = "a time above 0" if step < MIN_STEP_SECONDS else usual
            raise DataError(f"a gap in time: {actual}; expected {expected}", path, frame.line)
    return 1 / step
