"""The numbers of frames for `ensue data`: lengths, rates, ranges, missing values, labels; and their report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from rich.table import Table

from ensue.console.data_report import (
    MOST_ROWS,
    Report,
    counted,
    label_table,
    length_table,
    ranked,
    shown,
    table_of,
    toml_value,
)
from ensue.data.detection.kind import DataKind, Taken
from ensue.data.survey.counts import Lengths, Summary, fill
from ensue.errors import DataError
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors
from ensue.extensions.frames.data.source import FrameSource, kind_of
from ensue.extensions.frames.signs import frames_sign


class Ranges:
    """For each of d features: the least and the largest value, mean, deviation, and how many values are missing."""

    def __init__(self, width: int) -> None:
        self.least, self.most = np.full(width, np.inf), np.full(width, -np.inf)
        self.missing, self._count = np.zeros(width, np.int64), np.zeros(width, np.int64)
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, frames: Vectors) -> None:
        """Count the frames (T, d) of a series (Chan et al. 1983 for the squares)."""
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
        deviation: np.ndarray[tuple[int], np.dtype[np.float64]] = np.sqrt(self._squares / np.maximum(1, self._count))
        return deviation


@dataclass
class FrameSummary(Summary):
    """`size` series of frames. `labels` count series, `frame_labels` frames, if a label stands at each."""

    kinds: Counter[str] = field(default_factory=Counter)
    """The number of files of each kind: sound, npy, table, ..."""
    lengths: Lengths = field(default_factory=Lengths)
    """In frames."""
    labels: Counter[str] = field(default_factory=Counter)
    frame_labels: Counter[str] = field(default_factory=Counter)
    per_frame: bool = False
    """Whether frames of one series have different labels."""
    num_unlabeled: int = 0
    rate: float = 0.0
    """Frames per second, or samples per second of sounds; 0 if unknown."""
    columns: tuple[str, ...] = ()
    ranges: Ranges | None = None
    num_mixed: int = 0
    """Recordings of several channels."""


def survey_frames(taken: Taken, location: str, labels: str, encoding: str) -> FrameSummary:
    """Count all series up to the first unusable one, the summary's `error`. Missing values are counted."""
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


class FrameReport(Report[FrameSummary]):
    """The report on frames."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        kinds = ", ".join(kind for kind, _ in ranked(summary.kinds))
        yield "taken for", f"frames: {kinds} ({summary.taken.sign})"
        if summary.ranges is None:
            return
        yield "series", f"{summary.size:,}"
        yield "frames", f"{sum(length * count for length, count in summary.lengths.counts.items()):,}"
        yield "features", f"{len(summary.ranges.mean):,}"
        if summary.rate:
            yield "rate", f"{summary.rate:,g} {'samples' if 'sound' in summary.kinds else 'frames'} a second"
        if missing := int(summary.ranges.missing.sum()):
            yield "missing", counted(missing, "value")

    def tables(self) -> Iterator[Table]:
        summary = self.summary
        if not summary.size:
            return
        yield length_table({"frames in a series": summary.lengths})
        if summary.per_frame:
            yield label_table("frames", summary.frame_labels, summary.frame_labels.total())
        elif summary.labels:
            yield label_table("series", summary.labels, summary.size)
        if summary.ranges is not None:
            yield _range_table(summary.ranges, summary.columns)

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if summary.num_mixed:
            have = counted(summary.num_mixed, "recording has", "recordings have")
            yield f"{have} several channels, which are mixed"
        if summary.ranges is not None and summary.ranges.missing.any():
            yield "training on missing values needs --set data.missing=mean"
        if not summary.labels and summary.num_files > 1:
            yield 'no labels; if the names of the files have them, --set data.pattern="{label}_{}_{}" says where'
        if summary.labels and summary.num_unlabeled:
            yield f"{summary.num_unlabeled:,} series have no label"
        if len(summary.labels) == 1 and not summary.per_frame:
            yield f'all series have the label "{shown(next(iter(summary.labels)))}": there is nothing to learn'

    def recipe(self) -> tuple[str, str]:
        if len(self.summary.labels) < 2:
            return "predict-frames", "model"
        return ("tag-frames", "tagger") if self.summary.per_frame else ("classify-frames", "classifier")

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if self.columns.labels:
            yield f"data.labels={toml_value(self.columns.labels)}"


def _range_table(ranges: Ranges, names: tuple[str, ...]) -> Table:
    """Return a row for each feature that has a name; one for all that have none."""
    table = table_of("feature", "least", "mean", "deviation", "largest", "missing")
    mean, deviation = ranges.mean, ranges.deviation
    if not names:
        total_deviation = float(np.sqrt((deviation**2 + (mean - mean.mean()) ** 2).mean()))
        rows = [("all", ranges.least.min(), mean.mean(), total_deviation, ranges.most.max(), ranges.missing.sum())]
    else:
        rows = list(zip(names, ranges.least, mean, deviation, ranges.most, ranges.missing, strict=True))
    for name, *numbers, missing in rows[:MOST_ROWS]:
        table.add_row(shown(name), *(f"{number:,.4g}" for number in numbers), f"{missing:,}")
    if len(rows) > MOST_ROWS:
        table.add_row(f"and {len(rows) - MOST_ROWS:,} more")
    return table


class FrameKind(DataKind):
    """Series of real vectors: sounds, arrays and images, and tables that name such files or have a column `series`."""

    report = FrameReport

    def sign(self, location: str | Path, encoding: str) -> str:
        return frames_sign(location, encoding)

    def survey(self, taken: Taken, location: str, words: str, labels: str, encoding: str) -> FrameSummary:
        if words:
            raise DataError(f'no column "{words}": they are frames; --labels names a column', location)
        return survey_frames(taken, location, labels, encoding)
