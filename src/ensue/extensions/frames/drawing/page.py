"""A painter with an image, in numbers and as sections of a page: its canvases, its windows, its nats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.extensions.frames.drawing.task import Pixels, as_colors, noise_of
from ensue.extensions.frames.models.painter import Painter, WindowReader, WindowWriter
from ensue.extensions.frames.page import data_address
from ensue.inspection.page import Section, cut
from ensue.models.modules import device_of
from ensue.nn import watch
from ensue.tasks.contract.task import on_device


class PlacedWindow(NamedTuple):
    """A window in pixels, from 0 at the upper left: its middle, the reach of its grid, σ of its filters, and γ."""

    row: float
    column: float
    reach: float
    deviation: float
    intensity: float


@dataclass(frozen=True)
class PaintingView:
    """An image as a painter paints it, with one draw of z."""

    image: Pixels
    """(rows, columns, colors)."""
    canvases: NDArray[np.float32]
    """The probabilities of the pixels after each stroke, (T, rows, columns, colors)."""
    read: list[PlacedWindow]
    written: list[PlacedWindow]
    """The windows of each glimpse and each stroke; none without attention."""
    divergence: NDArray[np.float32]
    """The nats that z tells at each glimpse, (T,)."""
    reconstruction: float
    """The nats of the image, given the last canvas."""


@torch.inference_mode()
def view_painting(model: Painter, pixels: Pixels) -> PaintingView:
    """The view of an image (H, P·W)."""
    device = device_of(model)
    with (
        watch(model, "canvas", "*.window.five")
        if isinstance(model.reader, WindowReader)
        else watch(model, "canvas") as seen
    ):
        bound = model(on_device(pixels[None], device), noise_of(model, range(1), device))
    canvases = torch.cat(seen["canvas"]).sigmoid().cpu().numpy()
    return PaintingView(
        as_colors(pixels[None], model.size)[0], as_colors(canvases, model.size),
        _windows(model.reader, seen.get("reader.window.five", [])),
        _windows(model.writer, seen.get("writer.window.five", [])),
        bound.divergence[0].cpu().numpy(), float(bound.reconstruction),
    )  # fmt: skip


def _windows(part: torch.nn.Module, fives: list[Tensor]) -> list[PlacedWindow]:
    if not isinstance(part, WindowReader | WindowWriter) or not fives:
        return []
    found, reach = part.window.placed(torch.cat(fives)), part.window.size - 1
    columns = found.center[:, 0], found.center[:, 1], reach * found.stride, found.variance.sqrt(), found.intensity
    return [PlacedWindow(*numbers) for numbers in torch.stack(columns, 1).tolist()]


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
            data_address(view.canvases[time]),
            _frame(view.written[time], rows, columns) if view.written else None,
        )
        for time in range(count)
    ]
    numbers = {
        "glimpses": glimpses, "image": data_address(view.image), "size": (columns, rows),
        "shown_size": (columns * scale, rows * scale), "note": cut(len(view.canvases), count, "glimpses"),
        "reconstruction": view.reconstruction, "divergence": float(view.divergence.sum()),
    }  # fmt: skip
    return [Section(f"Image {number}, glimpse by glimpse", "extensions/frames/drawing/glimpses.html", numbers)]


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
