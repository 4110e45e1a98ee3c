"""Arrays of frames: .npy, .npz and .safetensors, a file for each series or one for all; and series written to files.

The keys are `frames`, (T, d) for one series, (N, T, d) for N of the same length, or (T, d) with `lengths` (N,) for N of
any; and `labels`: one for each series, or one for each frame. `rate` (a number) may say how many frames a second has.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import whole_bytes
from ensue.errors import DataError, nearest
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors, as_vectors
from ensue.extensions.frames.signs import SERIES
from ensue.processor import memory

KEYS = ("frames", "lengths", "labels", "rate")
Arrays = Mapping[str, NDArray[Any]]


def read_numpy(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """The series of a `.npy` file, which has no labels, or of a `.npz` file; its content says which it is."""
    yield from split(path, _named(path, _loaded(path)))


def read_safetensors(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """The series of a `.safetensors` file."""
    from safetensors.numpy import load  # noqa: PLC0415

    content = whole_bytes(path)
    try:
        arrays = load(content)
    except Exception as error:  # its reader raises errors of many kinds for damaged files
        raise DataError(f"damaged, or no safetensors file ({error})", path) from None
    yield from split(path, _named(path, arrays))


def split(path: Path, arrays: Arrays) -> Iterator[Series]:
    """The series in the arrays of a file. Raises DataError for shapes that do not go together."""
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
    rate = _rate(path, arrays.get("rate"))
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


def _rate(path: Path, rate: NDArray[Any] | None) -> float:
    if rate is None:
        return 0.0
    if rate.size != 1 or rate.dtype.kind not in "iuf" or not 0 < float(rate.reshape(())) < np.inf:
        raise DataError("rate is not a number above 0", path)
    return float(rate.reshape(()))


def _named(path: Path, arrays: Arrays) -> Arrays:
    """The arrays by their keys; a single one is that of the frames."""
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
            found = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"frames": found}
        size = sum(member.file_size for member in found.zip.infolist())
        if size <= memory() / 2:
            return {name: found[name] for name in found.files}
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
    """Raises DataError for a suffix that names no format of frames, and none of `others`."""
    known = (*WRITERS, *others)
    if path.suffix not in known:
        said = f'frames are not written as "{path.suffix}"{nearest(path.suffix, known)}; known: {", ".join(known)}'
        raise DataError(said, path)


def content_of(path: Path, series: Sequence[Vectors], *, columns: Sequence[str] = (), rate: float = 0.0) -> bytes:
    """One series or more, each (T, d), as the content of a file with this suffix. Raises DataError for another suffix,
    and for series of different lengths in a `.npy` file.
    """
    check_writable(path)
    if path.suffix == ".npy" and len({len(one) for one in series}) > 1:
        raise DataError("a .npy file has no room for series of different lengths; .npz has", path)
    return WRITERS[path.suffix](series, columns, rate)
