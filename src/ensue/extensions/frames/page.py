"""Drawings over the frames of a series: curves, maps, bars, labels over time, images whose rows are frames, PNG files.

They are independent of models.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.errors import EnsueError
from ensue.extensions.frames.data.series import Series, Vectors
from ensue.inspection.drawing import WordColumns, extent, lines
from ensue.inspection.markup import drawn, short
from ensue.inspection.page import Section, cut

MAX_DRAWN_FRAMES = 500
TOTAL_WIDTH, MIN_FRAME_WIDTH, MAX_FRAME_WIDTH = 1_000, 3, 44
"""The pixels of all frames together, and the least and most pixels of a frame."""
MIN_WIDTH_WITH_GAPS = 18
"""The pixels of a frame from which on frames have gaps between them."""
NUMBER_STEPS, MIN_NUMBER_WIDTH = (1, 2, 5, 10, 20, 50), 40
"""How many frames share a number, and the pixels that a number needs."""


class FrameColumns(WordColumns):
    """The columns of the first of `length` frames; `seconds` is the time of a frame, 0 if unknown."""

    unit = "frame"

    def __init__(self, length: int, *, seconds: float = 0.0, key: str = "") -> None:
        self.length, self.key = length, key
        numbers = range(min(length, MAX_DRAWN_FRAMES))
        width = float(min(MAX_FRAME_WIDTH, max(MIN_FRAME_WIDTH, TOTAL_WIDTH // len(numbers))))
        self.gap = 2.0 if width >= MIN_WIDTH_WITH_GAPS else 0.0
        every = next(step for step in NUMBER_STEPS if step * width >= MIN_NUMBER_WIDTH)
        self.words = [f"frame {n}, {n * seconds:.3g} s" if seconds else f"frame {n}" for n in numbers]
        self.shown = ["" if n % every else str(n) for n in numbers]
        self.widths = [width] * len(numbers)
        self.lefts = [width * n for n in range(len(numbers) + 1)]
        self.width = self.lefts[-1]

    @property
    def note(self) -> str:
        """A note of the number of frames that are not drawn."""
        return cut(self.length, len(self), "frames")


def data_address(image: NDArray[np.float32]) -> str:
    """Return the data address of an image (rows, columns, colors), with values from 0 to 1.

    Pixels of neither 1 nor 3 colors are shown as their means, and NaN as 0.
    """
    shown = np.nan_to_num(image if image.shape[2] in (1, 3) else image.mean(2, keepdims=True)).clip(0, 1)
    return f"data:image/png;base64,{b64encode(png((shown * 255).round().astype(np.uint8))).decode()}"


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the PNG of pixels (rows, columns, 1 or 3 colors)."""
    rows, columns, colors = pixels.shape
    scanlines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", columns, rows, 8, {1: 0, 3: 2}[colors], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(scanlines.tobytes(), 9)), (b"IEND", b"")
    packed = [struct.pack(">I", len(of)) + kind + of + struct.pack(">I", zlib.crc32(kind + of)) for kind, of in chunks]
    return b"".join([b"\x89PNG\r\n\x1a\n", *packed])


MAX_ROW_HEIGHT, MAX_MAP_HEIGHT = 18, 220
"""Pixels of a row of a map, and of all rows of a large one."""
MAX_NAMED_ROWS = 12
"""The most rows of a map that have names, and the most numbers in the title of a frame."""
BAR_HEIGHT = 110
MAX_IMAGE_SIDE = 360
"""The most pixels of a side of an image."""
PALE_TO_DARK = np.array([[253, 243, 205], [240, 150, 60], [178, 40, 90], [30, 20, 70]]) / 255
COOL_TO_WARM = np.array([[28, 110, 190], [240, 240, 240], [220, 80, 10]]) / 255
MISSING_COLOR = np.array([150, 150, 150]) / 255


def feature_map(
    values: NDArray[Any], columns: FrameColumns, rows: Sequence[str], *, name: str, signed: bool = False
) -> Markup:
    """Return a map of numbers (T, d): a column for each frame, the first feature at the bottom, NaN gray.

    The palest color is 0 if `signed`, else the least number.
    """
    count = len(columns)
    shown = values[:count]
    low, high = extent([shown])
    if signed:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    side = max(1, min(MAX_ROW_HEIGHT, MAX_MAP_HEIGHT // len(rows)))
    names = list(enumerate(rows)) if len(rows) <= MAX_NAMED_ROWS else [(0, rows[0]), (len(rows) - 1, rows[-1])]
    return drawn(
        "extensions/frames/map.html", columns=columns, height=side * len(rows), name=name,
        address=data_address(_colored(shown, low, high, signed=signed).transpose(1, 0, 2)[::-1]),
        names=[(row, side * (len(rows) - place - 0.5)) for place, row in names],
        titles=_titles(shown, columns, rows), low=low, high=high, signed=signed,
    )  # fmt: skip


def bars(values: NDArray[np.float64], columns: FrameColumns, *, name: str, what: str) -> Markup:
    """Return a number for each frame: what is above zero warm and upward, what is below cool and downward."""
    shown = [value if np.isfinite(value) else 0.0 for value in values[: len(columns)].tolist()]
    low, high = min(0.0, *shown), max(0.0, *shown)
    scale = BAR_HEIGHT / ((high - low) or 1.0)
    titles = [f"{word}\n{what} {short(value)}" for word, value in zip(columns.words, values.tolist(), strict=False)]
    boxes = [
        (column, "warm" if value > 0 else "cool", scale * (high - max(value, 0.0)), scale * abs(value))
        for column, value in enumerate(shown)
        if value
    ]
    ticks = [(short(value, 3), scale * (high - value)) for value in dict.fromkeys((high, 0.0, low))]
    return drawn(
        "extensions/frames/bars.html", columns=columns, height=BAR_HEIGHT, boxes=boxes, titles=titles, ticks=ticks,
        zero=scale * high, name=name,
    )  # fmt: skip


def labels_over_time(
    rows: Mapping[str, Sequence[str]], columns: FrameColumns, *, colors: Mapping[str, str], name: str
) -> Markup:
    """Return rows of labels, one for each frame; equal neighbors are one piece."""
    count = len(columns)
    pieces = []
    for labels in rows.values():
        runs, start = [], 0
        for label, run in groupby(labels[:count]):
            end = start + len(list(run))
            runs.append((label, columns.lefts[start], columns.lefts[end] - columns.gap))
            start = end
        pieces.append(runs)
    titles = [
        "\n".join([word, *(f"{kind} {labels[at]}" for kind, labels in rows.items())])
        for at, word in enumerate(columns.words)
    ]
    return drawn(
        "extensions/frames/labels.html", columns=columns, kinds=list(rows), pieces=pieces, titles=titles, colors=colors,
        name=name,
    )  # fmt: skip


def upright(values: NDArray[Any], columns: FrameColumns, *, colors: int, name: str) -> Markup:
    """Return an image whose rows are frames (T, d), with so many numbers for each pixel."""
    shown = values[: len(columns)].reshape(len(columns), -1, colors)
    tall, wide, _ = shown.shape
    zoom = max(1.0, min(12.0, MAX_IMAGE_SIDE / max(tall, wide)))
    return drawn(
        "extensions/frames/upright.html", columns=columns, address=data_address(shown), tall=tall * zoom,
        wide=wide * zoom, zoom=zoom, name=name,
    )  # fmt: skip


def _colored(values: NDArray[Any], low: float, high: float, *, signed: bool) -> NDArray[np.float32]:
    """Return the colors (T, d, 3) of numbers between two."""
    scale = COOL_TO_WARM if signed else PALE_TO_DARK
    places = np.linspace(low, high if high > low else low + 1, len(scale))
    colors = np.stack([np.interp(values, places, of_color) for of_color in scale.T], axis=-1)
    return np.where(np.isfinite(values)[..., None], colors, MISSING_COLOR).astype(np.float32)


def _titles(values: NDArray[Any], columns: FrameColumns, rows: Sequence[str]) -> list[str]:
    """Return the numbers shown of each frame: all of them, or of many the least and the largest."""
    titles = []
    for word, numbers in zip(columns.words, values, strict=True):
        some = list(range(len(rows)))
        if len(rows) > MAX_NAMED_ROWS:
            known = np.flatnonzero(np.isfinite(numbers))
            some = [int(known[numbers[known].argmin()]), int(known[numbers[known].argmax()])] if len(known) else []
        titles.append("\n".join([word, *(f"{rows[row]} {short(float(numbers[row]))}" for row in dict.fromkeys(some))]))
    return titles


MAX_PAGE_FRAMES = 10_000
"""The most frames of a series for a page."""


@dataclass(frozen=True)
class SeriesView:
    """The `frames` (T, d) as they are in the file, NaN where a value is missing; the names of the features, if they
    have any; and the labels that the file has, of the whole or `per_frame`.

    `seconds` is the time from frame to frame, 0 if nobody knows it. Of an image `colors` are the numbers of a pixel; 0:
    it is none.
    """

    series: str
    frames: Vectors
    features: tuple[str, ...]
    labels: tuple[str, ...]
    per_frame: bool
    seconds: float
    colors: int

    @classmethod
    def of(cls, series: Series, *, features: tuple[str, ...] = (), seconds: float = 0.0) -> SeriesView:
        """Return the view of a series. Raises EnsueError for one that is too long for a page."""
        length = len(series.frames)
        if length > MAX_PAGE_FRAMES:
            raise EnsueError(f"{series.name} has {length:,} frames; up to {MAX_PAGE_FRAMES:,} can be looked into")
        names = series.columns or features
        return cls(series.name, series.frames, names, series.labels, series.per_frame, seconds, series.colors)

    @property
    def columns(self) -> FrameColumns:
        """The places of its frames in drawings."""
        return FrameColumns(len(self.frames), seconds=self.seconds)

    @property
    def names(self) -> list[str]:
        """A name for each feature."""
        return list(self.features) or [f"feature {number}" for number in range(self.frames.shape[1])]


MAX_CURVES = 6
"""The most features that are curves."""


def series_section(view: SeriesView, columns: FrameColumns) -> Section:
    """Return the series: few features as curves, many as a map, an image upright."""
    if view.colors:
        drawing = upright(view.frames, columns, colors=view.colors, name="the image")
        about = "Each row of the image is a frame."
    else:
        drawing = curves_or_map(view.frames, columns, view.names, name="the series")
        is_map = view.frames.shape[1] > MAX_CURVES
        about = "Each column is a frame, with the first feature at the bottom." if is_map else "A curve is a feature."
    if missing := int(np.isnan(view.frames).sum()):
        about += f" {missing:,} of {view.frames.size:,} values {'is' if missing == 1 else 'are'} missing."
    if view.labels and not view.per_frame:
        about += f" Its file says: {' '.join(dict.fromkeys(view.labels))}."
    return Section.plain("The series", drawing, about=about, note=columns.note)


def curves_or_map(values: NDArray[Any], columns: FrameColumns, names: Sequence[str], *, name: str) -> Markup:
    """Return a drawing of numbers (T, d): few features as curves, many as a map."""
    if len(names) > MAX_CURVES:
        return feature_map(values, columns, names, name=name)
    return lines(dict(zip(names, values.T.astype(np.float64), strict=True)), columns, name=name)
