"""Many series in memory: all frames one after another, and where each series begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import real_places, side_by_side
from ensue.extensions.frames.data.series import Vectors

AT_ONCE = 65_536
"""Frames that are counted together."""


class FrameRows:
    """Series of frames as rows: `values` (F, d) from `starts[n]` to `starts[n + 1]`."""

    def __init__(self, values: Vectors, starts: NDArray[np.int64]) -> None:
        self.values, self.starts = values, starts
        self.lengths = np.diff(starts)

    @classmethod
    def of(cls, series: Sequence[Vectors]) -> FrameRows:
        """These series, each (T, d)."""
        starts = np.cumsum([0, *map(len, series)], dtype=np.int64)
        return cls(np.concatenate(series) if series else np.zeros((0, 0), np.float32), starts)

    def select(self, rows: NDArray[np.int64]) -> FrameRows:
        """Some of the series."""
        return self.of([self[row] for row in rows.tolist()])

    def cut(self, longest: int) -> FrameRows:
        """These frames, where each series is cut into equal pieces of at most `longest`."""
        pieces = [
            np.linspace(start, end, -(-(end - start) // longest) + 1, dtype=np.int64)[:-1]
            for start, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        return FrameRows(self.values, np.append(np.concatenate(pieces), self.starts[-1]))

    def padded(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Vectors:
        """The series side by side (B, T, d), filled up with zeros, as wide as all those of `among`."""
        places, real = side_by_side(self.starts, self.lengths, rows, among=among)
        if not places.size:
            return np.zeros((*places.shape, self.values.shape[1]), np.float32)
        found: Vectors = self.values[places]
        found[~real] = 0
        return found

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Which places of `padded` are real; None if all of `among` are."""
        return real_places(self.lengths, rows, among=among)

    def __getitem__(self, row: int) -> Vectors:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def __len__(self) -> int:
        return len(self.lengths)


def moments(series: Iterable[Vectors]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean and the deviation (d,) of each feature, without missing values; 0 and 1 where there is nothing else."""
    parts = [part[start : start + AT_ONCE] for part in series for start in range(0, len(part), AT_ONCE)]
    counts = np.maximum(1, sum(np.isfinite(part).sum(0) for part in parts))
    mean = sum(np.nansum(part, 0, dtype=np.float64) for part in parts) / counts
    spread = np.sqrt(sum(np.nansum((part - mean) ** 2, 0) for part in parts) / counts)
    return mean, np.where(spread > 1e-6 * np.maximum(1, np.abs(mean)), spread, 1.0)
