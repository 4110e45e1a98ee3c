"""Drawings of series of frames: curves, heat maps, bars, labels over time, and images."""

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

from ensue.extensions.frames.data.series import Vectors
from ensue.inspection.drawing import WordColumns, find_extent, plot
from ensue.inspection.page import Section, format_number, note_cut, render

MAX_DRAWN_FRAMES = 500
TOTAL_WIDTH, MIN_FRAME_WIDTH, MAX_FRAME_WIDTH = 1_000, 3, 44
"""The preferred width of a drawing, and the smallest and largest width of a frame, in pixels."""
MIN_WIDTH_WITH_GAPS = 18
"""The smallest width in pixels of frames that are separated by gaps."""
NUMBER_STEPS, MIN_NUMBER_WIDTH = (1, 2, 5, 10, 20, 50), 40
"""The possible distances between numbered frames, and the smallest distance in pixels between two numbers."""


class FrameColumns(WordColumns):
    """The columns of a drawing, for the first of `length` frames. The time between frames is `seconds` (0: unknown)."""

    unit = "frame"

    def __init__(self, length: int, *, seconds: float = 0.0, key: str = "") -> None:
        self.length, self.key = length, key
        numbers = range(min(length, MAX_DRAWN_FRAMES))
        width = float(min(MAX_FRAME_WIDTH, max(MIN_FRAME_WIDTH, TOTAL_WIDTH // len(numbers))))
        self.gap = 2.0 if width >= MIN_WIDTH_WITH_GAPS else 0.0
        step = next(step for step in NUMBER_STEPS if step * width >= MIN_NUMBER_WIDTH)
        self.words = [f"frame {n}, {n * seconds:.3g} s" if seconds else f"frame {n}" for n in numbers]
        self.shown = ["" if n % step else str(n) for n in numbers]
        self.widths = [width] * len(numbers)
        self.lefts = [width * n for n in range(len(numbers) + 1)]
        self.width = self.lefts[-1]
        self.note = note_cut(length, len(numbers), "frames")
        """A note on the number of frames that are not drawn; "" if all are drawn."""


def make_data_url(image: NDArray[np.float32]) -> str:
    """Return the data URL of an image (rows, columns, colors) with values from 0 to 1.

    Colors are averaged unless there are 1 or 3 colors. NaN is shown as 0.
    """
    shown = np.nan_to_num(image if image.shape[2] in (1, 3) else image.mean(2, keepdims=True)).clip(0, 1)
    return f"data:image/png;base64,{b64encode(encode_png((shown * 255).round().astype(np.uint8))).decode()}"


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels (rows, columns, 1 or 3 colors) as the content of a PNG file."""
    rows, columns, colors = pixels.shape
    scanlines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)  # 0: no filter
    header = struct.pack(">IIBBBBB", columns, rows, 8, {1: 0, 3: 2}[colors], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(scanlines.tobytes(), 9)), (b"IEND", b"")
    packed = [struct.pack(">I", len(x)) + kind + x + struct.pack(">I", zlib.crc32(kind + x)) for kind, x in chunks]
    return b"".join([b"\x89PNG\r\n\x1a\n", *packed])


MAX_ROW_HEIGHT, MAX_MAP_HEIGHT = 18, 220
"""The largest heights of a row and of a heat map in pixels. A map of many rows, of one pixel each, may be higher."""
MAX_NAMED_ROWS = 12
"""The largest number of rows of a map for which all names, and all values in titles of frames, are shown."""
BAR_HEIGHT = 110
MAX_IMAGE_SIDE = 360
"""The largest width or height of an image in pixels."""
PALE_TO_DARK = np.array([[253, 243, 205], [240, 150, 60], [178, 40, 90], [30, 20, 70]]) / 255
COOL_TO_WARM = np.array([[28, 110, 190], [240, 240, 240], [220, 80, 10]]) / 255
MISSING_COLOR = np.array([150, 150, 150]) / 255


def draw_map(
    values: NDArray[Any], columns: FrameColumns, rows: Sequence[str], *, name: str, signed: bool = False
) -> Markup:
    """Return a heat map of values (T, d) with a column for each frame, and the first feature at the bottom.

    NaN is gray. The palest color stands for 0 if `signed` is true, else for the smallest value.
    """
    shown = values[: len(columns)]
    low, high = find_extent([shown])
    if signed:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    row_height = max(1, min(MAX_ROW_HEIGHT, MAX_MAP_HEIGHT // len(rows)))
    names = list(enumerate(rows)) if len(rows) <= MAX_NAMED_ROWS else [(0, rows[0]), (len(rows) - 1, rows[-1])]
    return render(
        "extensions/frames/map.html", columns=columns, height=row_height * len(rows), name=name,
        address=make_data_url(_color(shown, low, high, signed=signed).transpose(1, 0, 2)[::-1]),
        names=[(row, row_height * (len(rows) - index - 0.5)) for index, row in names],
        titles=_make_titles(shown, columns, rows), low=low, high=high, signed=signed,
    )  # fmt: skip


def draw_bars(values: NDArray[np.float64], columns: FrameColumns, *, name: str, what: str) -> Markup:
    """Return a drawing with a bar for each frame: upward and warm for a positive value, else downward and cool."""
    shown = [value if np.isfinite(value) else 0.0 for value in values[: len(columns)].tolist()]
    low, high = min(0.0, *shown), max(0.0, *shown)
    scale = BAR_HEIGHT / ((high - low) or 1.0)
    titles = [
        f"{word}\n{what} {format_number(value)}" for word, value in zip(columns.words, values.tolist(), strict=False)
    ]
    boxes = [
        (column, "warm" if value > 0 else "cool", scale * (high - max(value, 0.0)), scale * abs(value))
        for column, value in enumerate(shown)
        if value
    ]
    ticks = [(format_number(value, 3), scale * (high - value)) for value in dict.fromkeys((high, 0.0, low))]
    return render(
        "extensions/frames/bars.html", columns=columns, height=BAR_HEIGHT, boxes=boxes, titles=titles, ticks=ticks,
        zero=scale * high, name=name,
    )  # fmt: skip


def draw_labels(rows: Mapping[str, Sequence[str]], columns: FrameColumns, *, colors: Mapping[str, str]) -> Markup:
    """Return a drawing with a row of labels over time for each of `rows`. Equal neighboring labels are merged."""
    rows_of_segments = []
    for labels in rows.values():
        segments, start = [], 0
        for label, frames in groupby(labels[: len(columns)]):
            end = start + len(list(frames))
            segments.append((label, columns.lefts[start], columns.lefts[end] - columns.gap))
            start = end
        rows_of_segments.append(segments)
    titles = [
        "\n".join([word, *(f"{kind} {labels[number]}" for kind, labels in rows.items())])
        for number, word in enumerate(columns.words)
    ]
    values = {"kinds": list(rows), "pieces": rows_of_segments, "titles": titles, "colors": colors}
    return render("extensions/frames/labels.html", columns=columns, **values)


def draw_image(values: NDArray[Any], columns: FrameColumns, *, colors: int, name: str) -> Markup:
    """Return an image whose rows are frames (T, d), with `colors` values for each pixel."""
    shown = values[: len(columns)].reshape(len(columns), -1, colors)
    height, width, _ = shown.shape
    zoom = max(1.0, min(12.0, MAX_IMAGE_SIDE / max(height, width)))
    sizes = {"tall": height * zoom, "wide": width * zoom, "zoom": zoom}
    return render("extensions/frames/rows.html", columns=columns, address=make_data_url(shown), name=name, **sizes)


def _color(values: NDArray[Any], low: float, high: float, *, signed: bool) -> NDArray[np.float32]:
    scale = COOL_TO_WARM if signed else PALE_TO_DARK
    levels = np.linspace(low, high if high > low else low + 1, len(scale))
    colors = np.stack([np.interp(values, levels, channel) for channel in scale.T], axis=-1)
    return np.where(np.isfinite(values)[..., None], colors, MISSING_COLOR).astype(np.float32)


def _make_titles(values: NDArray[Any], columns: FrameColumns, rows: Sequence[str]) -> list[str]:
    """Return a title for each frame, with all values, or with the smallest and the largest of many values."""
    titles = []
    for word, numbers in zip(columns.words, values, strict=True):
        chosen = list(range(len(rows)))
        if len(rows) > MAX_NAMED_ROWS:
            finite = np.flatnonzero(np.isfinite(numbers))
            extremes = numbers[finite].argmin, numbers[finite].argmax
            chosen = [int(finite[extreme()]) for extreme in extremes] if len(finite) else []
        lines_of_title = (f"{rows[row]} {format_number(float(numbers[row]))}" for row in dict.fromkeys(chosen))
        titles.append("\n".join([word, *lines_of_title]))
    return titles


MAX_PAGE_FRAMES = 10_000
"""The largest number of frames of a series on a page."""


@dataclass(frozen=True)
class SeriesView:
    """The view of a series, with the values and labels in the file."""

    series: str
    frames: Vectors
    """The features (T, d); NaN for missing values."""
    features: tuple[str, ...]
    labels: tuple[str, ...]
    """The labels of the series, or with `per_frame` one label for each frame."""
    per_frame: bool
    seconds: float
    """The time between frames; 0 if unknown."""
    colors: int
    """The number of colors of an image; 0 for other series."""

    @property
    def columns(self) -> FrameColumns:
        """The columns of drawings."""
        return FrameColumns(len(self.frames), seconds=self.seconds)

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return list(self.features) or [f"feature {number}" for number in range(self.frames.shape[1])]


MAX_CURVES = 6
"""The largest number of features that are drawn as curves. More features are drawn as a heat map."""


def series_section(view: SeriesView, columns: FrameColumns) -> Section:
    """Return the section with the series as curves, a heat map, or an image."""
    if view.colors:
        drawing = draw_image(view.frames, columns, colors=view.colors, name="the image")
        about = "Each row of the image is a frame."
    else:
        drawing = draw_curves_or_map(view.frames, columns, view.names, name="the series")
        is_map = view.frames.shape[1] > MAX_CURVES
        about = "Each column is a frame, with the first feature at the bottom." if is_map else "A curve is a feature."
    if missing := int(np.isnan(view.frames).sum()):
        about += f" {missing:,} of {view.frames.size:,} values {'is' if missing == 1 else 'are'} missing."
    if view.labels and not view.per_frame:
        about += f" The label in the file: {' '.join(dict.fromkeys(view.labels))}."
    return Section.plain("The series", drawing, about=about, note=columns.note)


def draw_curves_or_map(values: NDArray[Any], columns: FrameColumns, names: Sequence[str], *, name: str) -> Markup:
    """Return values (T, d) as curves, or as a heat map for more than `MAX_CURVES` features."""
    if len(names) > MAX_CURVES:
        return draw_map(values, columns, names, name=name)
    return plot(dict(zip(names, values.T.astype(np.float64), strict=True)), columns, name=name)
