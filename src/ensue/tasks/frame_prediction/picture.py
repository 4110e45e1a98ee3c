"""Series as a picture: time to the right; few features as curves, many as a map with the first one at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ensue.data.frames.series import Vectors
from ensue.runs.pictures import picture

SUFFIXES = (".png", ".svg", ".pdf")
MOST_CURVES, MOST_SERIES = 8, 24
"""The most features that are curves, and the most series that are drawn."""


def draw_series(path: Path, series: Sequence[Vectors], *, given: int, columns: Sequence[str] = ()) -> str:
    """Draws the first series below each other, with a line behind the `given` frames that they begin with. Returns what
    was drawn.
    """
    shown = series[:MOST_SERIES]
    least, most = min(float(one.min()) for one in shown), max(float(one.max()) for one in shown)
    with picture(path, (7, 0.6 + 1.2 * len(shown))) as figure:
        for axes, frames in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown, strict=True):
            if frames.shape[1] <= MOST_CURVES:
                axes.plot(frames, linewidth=1)
                axes.set_ylim(least, most)
            else:
                axes.imshow(frames.T, origin="lower", aspect="auto", vmin=least, vmax=most, interpolation="nearest")
            if given:
                axes.axvline(given - 0.5, color="white" if frames.shape[1] > MOST_CURVES else "gray", linestyle="--")
        if columns and len(columns) <= MOST_CURVES:
            figure.axes[0].legend(list(columns), fontsize=7)
        figure.axes[-1].set_xlabel("frame")
    return f"{len(shown):,} of {len(series):,} series" if len(shown) < len(series) else f"{len(series):,} series"
