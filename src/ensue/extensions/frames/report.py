"""The summary and the report of series of frames for `ensue data`."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from rich.table import Table

from ensue.data.detection.kind import DataKind, DetectedFormat
from ensue.data.files import files_of
from ensue.errors import DataError, pluralize
from ensue.extension import entries
from ensue.extensions.frames.data.readers import GapError
from ensue.extensions.frames.data.series import Series, SeriesOptions, Vectors
from ensue.extensions.frames.data.source import FrameSource, kind_of
from ensue.extensions.frames.signs import TableLayout, detect_layout, detection_reason, first_rows
from ensue.extensions.surveying import report
from ensue.extensions.surveying.counts import Lengths, Summary, fill

MAX_FEW_SERIES = 300
"""The largest number of series for which `classify-minirocket` is suggested, if its extension is installed."""
MIN_SPLIT_FRAMES = 50
"""The smallest mean length of series for which splitting at gaps in time is suggested."""


class Ranges:
    """Streaming statistics of d features: minimum, maximum, mean, deviation and number of missing values."""

    def __init__(self, width: int) -> None:
        self.minimum, self.maximum = np.full(width, np.inf), np.full(width, -np.inf)
        self.missing, self._count = np.zeros(width, np.int64), np.zeros(width, np.int64)
        self.mean, self._squares = np.zeros(width), np.zeros(width)

    def add(self, frames: Vectors) -> None:
        """Add the frames (T, d) of a series, with the update of the variance by Chan et al. 1983."""
        values = frames.astype(np.float64)
        is_present = ~np.isnan(values)
        count = is_present.sum(0)
        self.missing += len(values) - count
        self.minimum = np.minimum(self.minimum, np.where(is_present, values, np.inf).min(0))
        self.maximum = np.maximum(self.maximum, np.where(is_present, values, -np.inf).max(0))
        mean = np.where(is_present, values, 0).sum(0) / np.maximum(1, count)
        squares = (np.where(is_present, values - mean, 0) ** 2).sum(0)
        total = np.maximum(1, self._count + count)
        self._squares += squares + (mean - self.mean) ** 2 * self._count * count / total
        self.mean += (mean - self.mean) * count / total
        self._count += count

    @property
    def deviation(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The standard deviation (d,)."""
        return np.sqrt(self._squares / np.maximum(1, self._count))


@dataclass
class FrameSummary(Summary):
    """The statistics of series of frames."""

    kinds: Counter[str] = field(default_factory=Counter)
    """The number of files of each kind, such as sound, npy and table."""
    lengths: Lengths = field(default_factory=Lengths)
    """The lengths of series in frames."""
    labels: Counter[str] = field(default_factory=Counter)
    """The number of series with each label."""
    frame_labels: Counter[str] = field(default_factory=Counter)
    """The number of frames with each label."""
    per_frame: bool = False
    """Whether any series has frames with different labels."""
    num_unlabeled: int = 0
    rate: float = 0.0
    """Frames per second, or samples per second of sounds; 0 if unknown."""
    columns: tuple[str, ...] = ()
    ranges: Ranges | None = None
    num_mixed: int = 0
    """The number of recordings with several channels."""
    layout: TableLayout = field(default_factory=TableLayout)
    gap: str = ""
    """The error message for the first gap in time; "" without gaps."""
    gaps: Literal["refuse", "split", "ignore"] = "refuse"
    """The value of `data.gaps` with which the data were read."""


def _survey(detected: DetectedFormat, location: str, reading: SeriesOptions, layout: TableLayout) -> FrameSummary:
    summary = FrameSummary(detected, location, reading.encoding, layout=layout, gaps=reading.gaps)
    try:
        source = FrameSource(location, reading)
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


class FrameReport(report.Report[FrameSummary]):
    """The report on frames."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        kinds = ", ".join(kind for kind, _ in report.sort_by_frequency(summary.kinds))
        is_table = summary.layout != TableLayout()
        yield "taken for", f"frames: {kinds}{f', {summary.layout}' if is_table else f' ({summary.detected.reason})'}"
        if summary.ranges is None:
            return
        yield "series", f"{summary.size:,}"
        yield "frames", f"{sum(length * count for length, count in summary.lengths.counts.items()):,}"
        yield "features", f"{len(summary.ranges.mean):,}"
        if summary.rate:
            yield "rate", f"{summary.rate:,g} {'samples' if 'sound' in summary.kinds else 'frames'} a second"
        if missing := int(summary.ranges.missing.sum()):
            yield "missing", pluralize(missing, "value")

    def tables(self) -> Iterator[Table]:
        summary = self.summary
        if not summary.size:
            return
        yield report.length_table({"frames in a series": summary.lengths})
        if summary.per_frame:
            yield report.label_table("frames", summary.frame_labels, summary.frame_labels.total())
        elif summary.labels:
            yield report.label_table("series", summary.labels, summary.size)
        if summary.ranges is not None:
            yield _make_range_table(summary.ranges, summary.columns)

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if summary.gap:
            yield summary.gap
        if summary.num_mixed:
            have = pluralize(summary.num_mixed, "recording has", "recordings have")
            yield f"{have} several channels, which are mixed"
        if summary.ranges is not None and summary.ranges.missing.any():
            yield "training on missing values needs --set data.missing=mean"
        if not summary.labels and summary.num_files > 1:
            yield 'no labels; if file names have labels, --set data.pattern="{label}_{}_{}" sets their position'
        if summary.labels and summary.num_unlabeled:
            yield pluralize(summary.num_unlabeled, "series has no label", "series have no label")
        if len(summary.labels) == 1 and not summary.per_frame:
            label = report.display_name(next(iter(summary.labels)))
            yield f'all series have the label "{label}"; a classifier needs two labels'

    def recipe(self) -> tuple[str, str, str]:
        if self.summary.per_frame:
            return "tag-frames", "tagger", "each frame has a label"
        if len(self.summary.labels) < 2:
            return "predict-frames", "model", "the series do not have different labels"
        if self.summary.size <= MAX_FEW_SERIES and "classify-minirocket" in entries("recipe"):
            return "classify-minirocket", "classifier", "series are few"
        return "classify-frames", "classifier", "each series has a label"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        yield from self.summary.layout.settings()
        if self.summary.gap:
            yield f"data.gaps={self.summary.gaps}"
        if self.summary.ranges is not None and self.summary.ranges.missing.any():
            yield "data.missing=mean"


def _make_range_table(ranges: Ranges, names: tuple[str, ...]) -> Table:
    """Return a table with a row for each feature, or with a single row for features without names."""
    table = report.make_table("feature", "smallest", "mean", "deviation", "largest", "missing")
    mean, deviation = ranges.mean, ranges.deviation
    if not names:
        total_deviation = float(np.sqrt((deviation**2 + (mean - mean.mean()) ** 2).mean()))
        extremes = ranges.minimum.min(), ranges.maximum.max()
        rows = [("all", extremes[0], mean.mean(), total_deviation, extremes[1], ranges.missing.sum())]
    else:
        rows = list(zip(names, ranges.minimum, mean, deviation, ranges.maximum, ranges.missing, strict=True))
    for name, *numbers, missing in rows[: report.MAX_ROWS]:
        form = number_format(float(numbers[2]))
        table.add_row(report.display_name(name), *(format(float(number), form) for number in numbers), f"{missing:,}")
    if len(rows) > report.MAX_ROWS:
        table.add_row(f"and {len(rows) - report.MAX_ROWS:,} more")
    return table


def number_format(deviation: float) -> str:
    """Return a format in which the deviation of numbers has three significant digits."""
    digits = 2 - math.floor(math.log10(deviation)) if deviation > 0 else 0
    return f",.{max(0, digits)}f" if -6 < digits < 7 else ".3e"


class FrameKind(DataKind):
    """Series of real vectors: sounds, arrays, images, tables of frames, and tables of paths."""

    report = FrameReport

    def reason(self, location: str | Path, encoding: str) -> str:
        return detection_reason(location, encoding)

    def survey(self, detected: DetectedFormat, location: str, words: str, labels: str, encoding: str) -> FrameSummary:
        if words:
            raise DataError(f'no column "{words}": the data are frames; --labels expects a column', location)
        layout = detect_layout(first_rows(files_of(location)[0], encoding)) or TableLayout()
        layout, defaults = layout._replace(labels=labels or layout.labels), SeriesOptions()
        reading = SeriesOptions(
            missing="mean", labels=layout.labels or defaults.labels, time=layout.time or defaults.time,
            series=layout.series or defaults.series, features=layout.features, rows=layout.rows, encoding=encoding,
        )  # fmt: skip
        summary = _survey(detected, location, reading, layout)
        gap = summary.error
        if isinstance(gap, GapError):  # split series at gaps in time, or ignore gaps if the resulting series are short
            summary = _survey(detected, location, reading._replace(gaps="split"), layout)
            if summary.lengths.mean < MIN_SPLIT_FRAMES:
                summary = _survey(detected, location, reading._replace(gaps="ignore"), layout)
            summary.gap = gap.in_options()
        return summary
