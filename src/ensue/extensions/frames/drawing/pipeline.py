"""A painter in use: paints and evaluates images, and shows them glimpse by glimpse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_whole
from ensue.data.files import Location, one_location
from ensue.errors import DataError, EnsueError, nearest
from ensue.extensions.frames.data.series import Series, as_vectors
from ensue.extensions.frames.drawing.model import (
    Images,
    ImageSize,
    Painter,
    Pixels,
    WindowReader,
    WindowWriter,
    as_colors,
    binarized,
    images_of,
    noise_of,
    read_images,
    score_painter,
)
from ensue.extensions.frames.page import data_address
from ensue.extensions.frames.recipe import DrawingRecipe
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.models.modules import device_of
from ensue.nn import watch
from ensue.outputs import check_outputs, written
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import check_generated
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.contract.task import NamedScores, on_device


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
    """Return the view of an image (H, P·W)."""
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
    placed, reach = part.window.placed(torch.cat(fives)), part.window.size - 1
    columns = placed.center[:, 0], placed.center[:, 1], reach * placed.stride, placed.variance.sqrt(), placed.intensity
    return [PlacedWindow(*numbers) for numbers in torch.stack(columns, 1).tolist()]


MAX_SHOWN_GLIMPSES = 64
"""The most glimpses that are drawn."""
MAX_IMAGE_PIXELS = 120
"""The pixels of the longer side of an image."""


class Frame(NamedTuple):
    """The frame of a window in a drawing, in pixels of the image, and its title."""

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
    """Return the sections of the image with this number on the page."""
    rows, columns, _ = view.image.shape
    count, scale = min(len(view.canvases), MAX_SHOWN_GLIMPSES), MAX_IMAGE_PIXELS / max(rows, columns)
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
    """Return the grid with σ on each side, cut at the edges of the image, as a line at least one pixel thick."""
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
    """Return where a side begins, and how long it is, in an image of that length."""
    first, last = (min(length - line / 2, max(line / 2, middle + end)) for end in (-half, half))
    return first, last - first


MAX_BATCH_SAMPLES = 100
"""The images that are painted together."""
MAX_DRAWS = 100_000
"""The most samples, and the most draws for an image."""
MAX_SHOWN_IMAGES = 4
"""The most images that a page shows."""


class DrawingPipeline(Pipeline):
    """A painter: paints and evaluates."""

    generates_files: ClassVar[bool] = True
    reads_vectors: ClassVar[bool] = True

    def __init__(self, model: Painter, *, recipe: DrawingRecipe, run: str | Path | None = None) -> None:
        super().__init__(model.eval())
        self.recipe, self.run = recipe, run

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """Return the trained model in a run directory."""
        recipe: Any = directory.recipe
        return cls(directory.model(device), recipe=recipe, run=directory.path)

    def paint(self, samples: int = 1, *, seed: int = 0) -> NDArray[np.float32]:
        """Return the probabilities of pixels after each stroke, (samples, T, rows, columns), with the colors of a pixel
        as a last dim if there are several. A sample depends on its number and the seed alone.
        """
        return self._canvases(samples, seed, range(self.model.glimpses))

    @torch.inference_mode()
    def _canvases(self, samples: int, seed: int, strokes: Sequence[int]) -> NDArray[np.float32]:
        """`paint` after some of the strokes."""
        check_whole("samples", samples, 1, MAX_DRAWS)
        check_whole("seed", seed, 0, 2**63 - 1)
        size, device = self.model.size, device_of(self.model)
        check_generated(samples * len(strokes) * size.pixels)
        batches = []
        for first in range(0, samples, MAX_BATCH_SAMPLES):
            noise = noise_of(self.model, range(first, min(first + MAX_BATCH_SAMPLES, samples)), device, seed=seed)
            batches.append(self.model.canvases(noise)[:, list(strokes)].cpu().numpy())
        canvases = as_colors(np.concatenate(batches).reshape(-1, *size.shape), size)
        canvases = canvases.reshape(samples, -1, *canvases.shape[1:])
        return canvases if size.colors > 1 else canvases[..., 0]

    def generate_into(
        self, out: str | Path, *, samples: int = 16, frames: int | None = None, seed: int | None = None,
        overwrite: bool = False,
    ) -> str:  # fmt: skip
        """Write samples as a picture with a tile for each, or as an animation of painting (`.gif`, `.apng`).

        Args:
            out: The file; its suffix is the format.
            samples: The number of images.
            frames: States of the canvas: in a picture a row for each sample, in an animation the number of its frames.
            seed: The seed of the draws.
            overwrite: Whether a file that ensue did not write is replaced.

        Returns:
            A line for the user.

        Raises:
            EnsueError: The suffix is that of no picture, or the file exists.
        """
        suffix, known = Path(out).suffix.lower(), (*STILL, *ANIMATED)
        if suffix not in known:
            raise EnsueError(f'{out}: no picture by its suffix "{suffix}"{nearest(suffix, known)} ({", ".join(known)})')
        check_outputs([self.run or ""], files=[out], overwrite=overwrite)
        if frames is not None:
            check_whole("frames", frames, 1, 1_000_000)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        strokes: int = self.model.glimpses
        count = min(frames or (strokes if is_animated(Path(out)) else 1), strokes)
        shown = [math.ceil((number + 1) * strokes / count) - 1 for number in range(count)]  # evenly; the last is one
        return draw_canvases(Path(out), self._canvases(samples, seed, shown))

    def evaluate(self, location: Location, *, encoding: str = "utf-8", draws: int = 1) -> NamedScores:
        """Return the bound on images in nats per image; with several `draws` of z also an estimate by importance
        sampling.
        """
        location = one_location(location, "the data")
        check_whole("draws", draws, 1, MAX_DRAWS)
        images = read_images(location, colors=self.model.size.colors, encoding=encoding, size=self.model.size)
        return score_painter(self.model, binarized(images, self.recipe.data.binarize), draws=draws)

    def inspect_texts(self, *texts: Any, **options: Any) -> Inspection:
        """`inspect` of a location, or of the rows of one image, as the server has them."""
        return self.inspect(texts[0] if texts and isinstance(texts[0], str) else [list(texts)], **options)

    def inspect(self, images: Any) -> Inspection:
        """Return how the model reads and paints images, glimpse by glimpse: the first few of a file, a folder or a
        glob, or of a list of arrays (rows, columns · colors).
        """
        shown = binarized(self._images(images), self.recipe.data.binarize)
        views = [view_painting(self.model, pixels) for pixels in shown.pixels]
        title = clipped(str(images), TITLE) if isinstance(images, str | Path) else "images"
        sections = [section for number, view in enumerate(views) for section in painting_sections(view, number + 1)]
        return Inspection(title, views, self.facts(self.recipe.describe()), sections)

    def _images(self, images: Any) -> Images:
        """Return the first few images of a caller. Raises EnsueError for numbers that are none."""
        size: ImageSize = self.model.size
        if isinstance(images, str | Path):
            return read_images(str(images), colors=size.colors, size=size, most=MAX_SHOWN_IMAGES)
        try:
            arrays = [as_vectors(np.asarray(image), "") for image in images[:MAX_SHOWN_IMAGES]]
            series = [Series(f"image {number}", array.reshape(len(array), -1)) for number, array in enumerate(arrays)]
        except (TypeError, ValueError, DataError):
            series = []
        read = images_of(series, colors=size.colors, size=size)
        if read is None:
            raise EnsueError(f"expected a path, or a list of arrays of numbers ({size.rows}, {size.shape[1]})")
        return read

    def protocol(self, scores: Any) -> str:
        how = {
            "none": "pixels are read as probabilities",
            "threshold": "pixels are 1 from 0.5 on",
        }.get(self.recipe.data.binarize, "pixels are drawn once, with their values as probabilities")
        return f"nats per image: a bound on -log p(x), by draws of z; {how}"

    def __repr__(self) -> str:
        return self._described(
            self.recipe.describe(), f"{self.num_parameters:,} parameters", f"images of {self.model.size}"
        )


STILL = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tiff")
ANIMATED = (".gif", ".apng")
ANIMATION_SECONDS, LAST_FRAME_SECONDS = 4.0, 2.0
"""The length of an animation, and how long its end stands."""
SCALE = 3
"""The side of a pixel in the picture."""


def is_animated(path: Path) -> bool:
    """Return whether the suffix is that of an animation."""
    return path.suffix.lower() in ANIMATED


def draw_canvases(path: Path, canvases: NDArray[np.float32]) -> str:
    """Write canvases (N, T, H, W) or (N, T, H, W, colors): one moment as tiles, several as a row for each N.

    Returns:
        A line for the user.

    Raises:
        EnsueError: The file cannot be written.
    """
    count, times, *_ = canvases.shape
    side = math.ceil(math.sqrt(count))
    line = f"wrote {path}: {count:,} sample{'s' if count > 1 else ''}"
    if is_animated(path):
        _save(path, [tiled(canvases[:, time], columns=side) for time in range(times)])
        return f"{line}, painted in {times:,} frames"
    _save(path, [tiled(canvases.reshape(-1, *canvases.shape[2:]), columns=side if times == 1 else times)])
    return line if times == 1 else f"{line}, a row for each, at {times:,} times"


def tiled(images: NDArray[np.float32], *, columns: int) -> NDArray[np.uint8]:
    """Return images (N, H, W) or (N, H, W, colors) as tiles with gray lines between them."""
    rows = math.ceil(len(images) / columns)
    _, height, width, *colors = images.shape
    line = 1
    picture = np.full((rows * (height + line) - line, columns * (width + line) - line, *colors), 128, np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top, left = row * (height + line), column * (width + line)
        picture[top : top + height, left : left + width] = np.round(255 * image).astype(np.uint8)
    return picture.repeat(SCALE, 0).repeat(SCALE, 1)


def _save(path: Path, pictures: list[NDArray[np.uint8]]) -> None:
    from PIL import Image  # noqa: PLC0415 (slow to import)

    first, *others = (Image.fromarray(picture) for picture in pictures)
    animation: dict[str, Any] = {}
    if is_animated(path):
        durations = [max(20, round(1000 * ANIMATION_SECONDS / len(pictures)))] * len(others) + [
            round(1000 * LAST_FRAME_SECONDS)
        ]
        animation = {"save_all": True, "append_images": others, "duration": durations, "loop": 0}
    with written(path) as partial:
        first.save(partial, Image.registered_extensions()[path.suffix.lower()], **animation)
