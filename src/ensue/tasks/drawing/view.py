"""What happens in a painter with an image, in numbers: its canvases, its windows, its nats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.modules import device_of
from ensue.models.painter import Painter, WindowReader, WindowWriter
from ensue.nn import watch
from ensue.tasks.contract.task import on_device
from ensue.tasks.drawing.images import Pixels, as_colors
from ensue.tasks.drawing.task import noise_of


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
    with watch(model, "canvas", "*.window.five") if windowed(model) else watch(model, "canvas") as seen:
        bound = model(on_device(pixels[None], device), noise_of(model, range(1), device))
    canvases = torch.cat(seen["canvas"]).sigmoid().cpu().numpy()
    return PaintingView(
        as_colors(pixels[None], model.size)[0], as_colors(canvases, model.size),
        _windows(model.reader, seen.get("reader.window.five", [])),
        _windows(model.writer, seen.get("writer.window.five", [])),
        bound.divergence[0].cpu().numpy(), float(bound.reconstruction),
    )  # fmt: skip


def windowed(model: Painter) -> bool:
    """Whether the painter reads and writes in windows."""
    return isinstance(model.reader, WindowReader)


def _windows(part: torch.nn.Module, fives: list[Tensor]) -> list[PlacedWindow]:
    if not isinstance(part, WindowReader | WindowWriter) or not fives:
        return []
    found, reach = part.window.placed(torch.cat(fives)), part.window.size - 1
    columns = found.center[:, 0], found.center[:, 1], reach * found.stride, found.variance.sqrt(), found.intensity
    return [PlacedWindow(*numbers) for numbers in torch.stack(columns, 1).tolist()]
