"""The sections of a page for a `PaintingView`: what is read and what is painted, glimpse by glimpse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ensue.inspection.page import Section, cut
from ensue.inspection.pixels import data_address
from ensue.tasks.drawing.images import Pixels
from ensue.tasks.drawing.view import PaintingView, PlacedWindow

MOST_GLIMPSES = 64
"""The most glimpses that are drawn."""
ROOM = 120
"""The pixels of the longer side of an image."""


class Frame(NamedTuple):
    """The frame of a window in a drawing, in pixels of the image, and what is said of it."""

    x: float
    y: float
    width: float
    height: float
    line: float
    title: str


class Glimpse(NamedTuple):
    """A glimpse and its stroke: the window that is read, the canvas behind it, the window that was painted."""

    nats: float
    read: Frame | None
    canvas: str
    written: Frame | None


def painting_sections(view: PaintingView, number: int) -> list[Section]:
    """The sections of an image, which is the one of that number on the page."""
    rows, columns, _ = view.image.shape
    count, scale = min(len(view.canvases), MOST_GLIMPSES), ROOM / max(rows, columns)
    glimpses = [
        Glimpse(
            float(view.divergence[time]),
            _frame(view.read[time], rows, columns) if view.read else None,
            _address(view.canvases[time]),
            _frame(view.written[time], rows, columns) if view.written else None,
        )
        for time in range(count)
    ]
    numbers = {
        "glimpses": glimpses, "image": _address(view.image), "size": (columns, rows),
        "shown_size": (columns * scale, rows * scale), "note": cut(len(view.canvases), count, "glimpses"),
        "reconstruction": view.reconstruction, "divergence": float(view.divergence.sum()),
    }  # fmt: skip
    return [Section(f"Image {number}, glimpse by glimpse", "tasks/drawing/glimpses.html", numbers)]


def _address(pixels: Pixels) -> str:
    return data_address(pixels if pixels.shape[2] in (1, 3) else np.asarray(pixels.mean(2, keepdims=True)))


def _frame(window: PlacedWindow, rows: int, columns: int) -> Frame:
    """The grid with σ on each side, cut at the edges of the image. The line is as thick as σ/2, but stays a line."""
    half, line = window.reach / 2 + window.deviation, min(2.0, max(0.3, window.deviation / 2))
    title = (
        f"middle at row {window.row:.1f}, column {window.column:.1f}; reach {window.reach:.1f}, "
        f"σ {window.deviation:.2f}, γ {window.intensity:.2f}"
    )
    (left, width), (top, height) = (
        _cut(middle + 0.5, half, length, line) for middle, length in ((window.column, columns), (window.row, rows))
    )
    return Frame(left, top, width, height, line, title)


def _cut(middle: float, half: float, length: int, line: float) -> tuple[float, float]:
    """Where a side begins, and how long it is, in an image of that length."""
    first, last = (min(length - line / 2, max(line / 2, middle + end)) for end in (-half, half))
    return first, last - first
