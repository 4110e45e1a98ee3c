"""The range of each feature of frames, counted series by series."""

from __future__ import annotations

import numpy as np

from ensue.data.frames.series import Vectors


class Ranges:
    """For each of d features: the least and the largest value, mean, deviation, and how many values are missing."""

    def __init__(self, width: int) -> None:
        self.least, self.most = np.full(width, np.inf), np.full(width, -np.inf)
        self.missing, self._count = np.zeros(width, np.int64), np.zeros(width, np.int64)
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, frames: Vectors) -> None:
        """Counts the frames (T, d) of a series (Chan et al. 1983 for the squares)."""
        values = frames.astype(np.float64)
        real = ~np.isnan(values)
        count = real.sum(0)
        self.missing += len(values) - count
        self.least = np.minimum(self.least, np.where(real, values, np.inf).min(0))
        self.most = np.maximum(self.most, np.where(real, values, -np.inf).max(0))
        mean = np.where(real, values, 0).sum(0) / np.maximum(1, count)
        squares = (np.where(real, values - mean, 0) ** 2).sum(0)
        total = np.maximum(1, self._count + count)
        self._squares += squares + (mean - self.mean) ** 2 * self._count * count / total
        self.mean += (mean - self.mean) * count / total
        self._count += count

    @property
    def deviation(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The standard deviation (d,)."""
        found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.sqrt(self._squares / np.maximum(1, self._count))
        return found
