"""The numbers of frames: lengths, rates, ranges, missing values, labels."""

from __future__ import annotations

from ensue.data.detection.kind import Taken
from ensue.data.frames.series import Reading, Series
from ensue.data.frames.source import FrameSource, kind_of
from ensue.data.survey.frame_ranges import Ranges
from ensue.data.survey.summary import FrameSummary
from ensue.errors import DataError


def survey_frames(taken: Taken, location: str, labels: str, encoding: str) -> FrameSummary:
    """Counts all series, or those before the first that cannot be used, which is the summary's `error`. Missing values
    are counted, and are no mistake here.
    """
    reading = Reading(missing="mean", labels=labels or Reading().labels, encoding=encoding)
    summary = FrameSummary(taken, location, encoding)
    source = FrameSource(location, reading)
    try:
        summary.num_files = len(source.files)
        summary.kinds.update(kind_of(file.path) for file in source.files)
        for series in source:
            _feed(summary, series, reading)
        if not summary.size:
            raise DataError("no series in it", location)
    except DataError as error:
        summary.error = error
    return summary


def _feed(summary: FrameSummary, series: Series, reading: Reading) -> None:
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
