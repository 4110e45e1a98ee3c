"""The numbers of frames: lengths, rates, ranges, missing values, labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ensue.data.detection.kind import Taken
from ensue.data.survey.counts import Lengths, Summary, fill
from ensue.errors import DataError
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors
from ensue.extensions.frames.data.source import FrameSource, kind_of


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


@dataclass
class FrameSummary(Summary):
    """`size` series of frames. `labels` count series, `frame_labels` frames, if a label stands at each."""

    kinds: Counter[str] = field(default_factory=Counter)
    """How many files hold what: sound, npy, table, ..."""
    lengths: Lengths = field(default_factory=Lengths)
    """In frames."""
    labels: Counter[str] = field(default_factory=Counter)
    frame_labels: Counter[str] = field(default_factory=Counter)
    per_frame: bool = False
    """Whether frames of one series have different labels."""
    num_unlabeled: int = 0
    rate: float = 0.0
    """Frames in a second, or samples of sounds; 0 if nobody knows it."""
    columns: tuple[str, ...] = ()
    ranges: Ranges | None = None
    num_mixed: int = 0
    """Recordings of several channels."""


def survey_frames(taken: Taken, location: str, labels: str, encoding: str) -> FrameSummary:
    """Counts all series up to the first unusable one, the summary's `error`. Missing values are counted."""
    reading = SeriesOptions(missing="mean", labels=labels or SeriesOptions().labels, encoding=encoding)
    summary = FrameSummary(taken, location, encoding)
    source = FrameSource(location, reading)
    try:
        summary.num_files = len(source.files)
        summary.kinds.update(kind_of(file.path) for file in source.files)
    except DataError as error:
        summary.error = error
        return summary
    fill(summary, source, partial(_feed, summary), "series")
    return summary


def _feed(summary: FrameSummary, series: Series) -> None:
    summary.size += 1
    summary.lengths.add(len(series.frames))
    summary.rate, summary.columns = series.rate or summary.rate, series.columns
    summary.ranges = summary.ranges or Ranges(series.frames.shape[1])
    summary.ranges.add(series.frames)
    summary.num_mixed += series.channels > 1
    summary.num_unlabeled += not series.labels
    summary.per_frame = summary.per_frame or (series.per_frame and len(set(series.labels)) > 1)
    summary.frame_labels.update(series.labels if series.per_frame else [])
    summary.labels.update(series.labels[:1] if series.per_frame else series.labels)
