"""Series of frames to files: .npz, .npy and .csv, which `source.py` reads again."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ensue.data.detection.frame_signs import SERIES
from ensue.data.frames.series import Vectors
from ensue.errors import DataError, nearest


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
