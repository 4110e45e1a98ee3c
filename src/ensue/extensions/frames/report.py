"""The report of `ensue data` on frames."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.table import Table

from ensue.console.data_report import Report, toml_value
from ensue.console.data_tables import MOST_ROWS, counted, label_table, length_table, ranked, shown, table_of
from ensue.extensions.frames.survey import FrameSummary, Ranges


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
    """A row for each feature that has a name; one for all that have none."""
    table = table_of("feature", "least", "mean", "deviation", "largest", "missing")
    mean, deviation = ranges.mean, ranges.deviation
    if not names:
        whole = float(np.sqrt((deviation**2 + (mean - mean.mean()) ** 2).mean()))
        rows = [("all", ranges.least.min(), mean.mean(), whole, ranges.most.max(), ranges.missing.sum())]
    else:
        rows = list(zip(names, ranges.least, mean, deviation, ranges.most, ranges.missing, strict=True))
    for name, *numbers, missing in rows[:MOST_ROWS]:
        table.add_row(shown(name), *(f"{number:,.4g}" for number in numbers), f"{missing:,}")
    if len(rows) > MOST_ROWS:
        table.add_row(f"and {len(rows) - MOST_ROWS:,} more")
    return table
