"""The pipeline of painters: sampling, evaluation, and the page that shows the glimpses of an image."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Data, as_location
from ensue.errors import DataError, EnsueError, check_integer, nearest
from ensue.extensions.frames.data.series import Series, as_vectors
from ensue.extensions.frames.drawing import model as drawing
from ensue.extensions.frames.page import make_data_url
from ensue.extensions.frames.recipe import DrawingRecipe
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip, note_cut
from ensue.models.modules import device_of
from ensue.nn import watch
from ensue.outputs import atomic_output, check_outputs
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import check_generated
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.contract.task import NamedScores, on_device


class PlacedWindow(NamedTuple):
    """A window of filters: the center and the side of the grid in pixels, σ of the filters, and the intensity γ."""

    row: float
    column: float
    reach: float
    deviation: float
    intensity: float


@dataclass(frozen=True)
class PaintingView:
    """The view of the reconstruction of an image, with one sample of z."""

    image: drawing.Pixels
    """The pixels (rows, columns, colors)."""
    canvases: NDArray[np.float32]
    """The probabilities (T, rows, columns, colors) of the pixels after each stroke."""
    read: list[PlacedWindow]
    """The windows of glimpses; empty without attention."""
    written: list[PlacedWindow]
    """The windows of strokes; empty without attention."""
    divergence: NDArray[np.float32]
    """The KL divergence (T,) of z at each glimpse, in nats."""
    reconstruction: float
    """The surprisal of the image given the last canvas, in nats."""


@torch.inference_mode()
def view_painting(model: drawing.Painter, pixels: drawing.Pixels) -> PaintingView:
    """Return the view of an image (H, P·W)."""
    device = device_of(model)
    taps = ["canvas", *(["*.window.five"] if isinstance(model.reader, drawing.WindowReader) else [])]
    with watch(model, *taps) as recorded:
        bound = model(on_device(pixels[None], device), drawing.draw_noise(model, range(1), device))
    canvases = torch.cat(recorded["canvas"]).sigmoid().cpu().numpy()
    read = _place_windows(model.reader, recorded.get("reader.window.five", []))
    written = _place_windows(model.writer, recorded.get("writer.window.five", []))
    divergence, reconstruction = bound.divergence[0].cpu().numpy(), float(bound.reconstruction)
    image, canvases = drawing.to_colors(pixels[None], model.size)[0], drawing.to_colors(canvases, model.size)
    return PaintingView(image, canvases, read, written, divergence, reconstruction)


def _place_windows(module: torch.nn.Module, parameters: list[Tensor]) -> list[PlacedWindow]:
    """Return the windows of a reader or writer for the five parameters of each step."""
    if not isinstance(module, drawing.WindowReader | drawing.WindowWriter) or not parameters:
        return []
    windows, steps = module.window.build_window(torch.cat(parameters)), module.window.size - 1
    center, deviation = windows.center, windows.variance.sqrt()
    columns = center[:, 0], center[:, 1], steps * windows.stride, deviation, windows.intensity
    return [PlacedWindow(*numbers) for numbers in torch.stack(columns, 1).tolist()]


MAX_SHOWN_GLIMPSES = 64
MAX_IMAGE_PIXELS = 120
"""The longer side of an image on the page, in pixels."""


def painting_sections(view: PaintingView, number: int) -> list[Section]:
    """Return the sections of an image on the page."""
    rows, columns, _ = view.image.shape
    count, scale = min(len(view.canvases), MAX_SHOWN_GLIMPSES), MAX_IMAGE_PIXELS / max(rows, columns)
    frames: Iterator[list[Any]] = (
        [_frame_window(window, rows, columns) for window in windows[:count]] or [None] * count
        for windows in (view.read, view.written)
    )
    (read, written), canvases = frames, map(make_data_url, view.canvases[:count])
    values = {
        "glimpses": list(zip(view.divergence[:count].tolist(), read, canvases, written, strict=True)),
        "image": make_data_url(view.image), "size": (columns, rows),
        "shown_size": (columns * scale, rows * scale), "note": note_cut(len(view.canvases), count, "glimpses"),
        "reconstruction": view.reconstruction, "divergence": float(view.divergence.sum()),
    }  # fmt: skip
    return [Section(f"Image {number}, by glimpse", "extensions/frames/drawing/glimpses.html", values)]


def _frame_window(window: PlacedWindow, rows: int, columns: int) -> tuple[float, float, float, float, float, str]:
    """Return the rectangle (x, y, width, height) around a window, in pixels of the image, its line width and title."""
    half, line = window.reach / 2 + window.deviation, min(2.0, max(0.3, window.deviation / 2))
    title = (
        f"center at row {window.row:.1f}, column {window.column:.1f}; side {window.reach:.1f}, "
        f"σ {window.deviation:.2f}, γ {window.intensity:.2f}"
    )
    (left, right), (top, bottom) = (
        [min(length - line / 2, max(line / 2, center + 0.5 + offset)) for offset in (-half, half)]
        for center, length in ((window.column, columns), (window.row, rows))
    )
    return left, top, right - left, bottom - top, line, title


MAX_BATCH_SAMPLES = 100
MAX_DRAWS = 100_000
"""The largest number of generated images, and of samples of z for an image in scoring."""
MAX_SHOWN_IMAGES = 4


class DrawingPipeline(Pipeline):
    """The pipeline of a painter."""

    generates_files: ClassVar[bool] = True
    reads_vectors: ClassVar[bool] = True

    def __init__(self, model: drawing.Painter, *, recipe: DrawingRecipe, run: str | Path | None = None) -> None:
        super().__init__(model.eval())
        self.recipe, self.run = recipe, run

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe: Any = directory.recipe
        return cls(directory.model(device), recipe=recipe, run=directory.path)

    def paint(self, samples: int = 1, *, seed: int = 0) -> NDArray[np.float32]:
        """Generate images, and return the probabilities of their pixels after each stroke.

        Args:
            samples: The number of images.
            seed: The seed. An image depends only on its number and the seed.

        Returns:
            An array (samples, T, rows, columns), or (samples, T, rows, columns, colors) for several colors.
        """
        return self._paint_canvases(samples, seed, range(self.model.glimpses))

    @torch.inference_mode()
    def _paint_canvases(self, samples: int, seed: int, strokes: Sequence[int]) -> NDArray[np.float32]:
        check_integer("samples", samples, 1, MAX_DRAWS)
        check_integer("seed", seed, 0, 2**63 - 1)
        size, device = self.model.size, device_of(self.model)
        check_generated(samples * len(strokes) * size.pixels)
        batches = []
        for first in range(0, samples, MAX_BATCH_SAMPLES):
            numbers = range(first, min(first + MAX_BATCH_SAMPLES, samples))
            noise = drawing.draw_noise(self.model, numbers, device, seed=seed)
            batches.append(self.model.canvases(noise)[:, list(strokes)].cpu().numpy())
        canvases = drawing.to_colors(np.concatenate(batches).reshape(-1, *size.shape), size)
        canvases = canvases.reshape(samples, -1, *canvases.shape[1:])
        return canvases if size.colors > 1 else canvases[..., 0]

    def generate_into(
        self, out: str | Path, *, samples: int = 16, frames: int | None = None, seed: int | None = None,
        overwrite: bool = False,
    ) -> str:  # fmt: skip
        """Write samples as a picture of tiles, or as an animation of the strokes (`.gif`, `.apng`).

        Args:
            out: The file, whose suffix determines the format.
            samples: The number of images.
            frames: The number of canvases for each sample, in a row of tiles or in the animation.
            seed: The seed of the images; None for a random seed.
            overwrite: Whether to replace a file that ensue did not write.

        Returns:
            A line for the user.

        Raises:
            EnsueError: The suffix is unknown, or the file exists.
        """
        suffix, known = Path(out).suffix.lower(), (*STILL, *ANIMATED)
        if suffix not in known:
            raise EnsueError(f'{out}: unknown suffix "{suffix}"{nearest(suffix, known)}; expected {", ".join(known)}')
        check_outputs([self.run or ""], files=[out], overwrite=overwrite)
        if frames is not None:
            check_integer("frames", frames, 1, 1_000_000)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        strokes: int = self.model.glimpses
        count = min(frames or (strokes if is_animated(Path(out)) else 1), strokes)
        shown = [math.ceil((number + 1) * strokes / count) - 1 for number in range(count)]  # evenly spaced
        return draw_canvases(Path(out), self._paint_canvases(samples, seed, shown))

    def evaluate(self, location: Data, *, encoding: str = "utf-8", draws: int = 1) -> NamedScores:
        """Return the bound in nats per image; with several `draws` of z also the bound by importance sampling."""
        location = as_location(location, "the data")
        check_integer("draws", draws, 1, MAX_DRAWS)
        images = drawing.read_images(location, colors=self.model.size.colors, encoding=encoding, size=self.model.size)
        return drawing.score_painter(self.model, drawing.binarize(images, self.recipe.data.binarize), draws=draws)

    def inspect_texts(self, *texts: Any, encoding: str | None = None, **options: Any) -> Inspection:
        """Return the page of a location, or of an image whose rows are the arguments, for a request to the server."""
        if texts and isinstance(texts[0], str):
            return self.inspect(texts[0], encoding=encoding, **options)
        return self.inspect([list(texts)], **options)

    def inspect(self, images: Any, *, encoding: str | None = None) -> Inspection:
        """Return the page of the first images in a location, or in a list of arrays (rows, columns · colors)."""
        shown = drawing.binarize(self._read_images(images, encoding), self.recipe.data.binarize)
        views = [view_painting(self.model, pixels) for pixels in shown.pixels]
        title = clip(str(images), MAX_TITLE_CHARACTERS) if isinstance(images, str | Path) else "images"
        sections = [section for number, view in enumerate(views) for section in painting_sections(view, number + 1)]
        return Inspection(title, views, self.facts(self.recipe.describe()), sections)

    def _read_images(self, images: Any, encoding: str | None) -> drawing.Images:
        """Return the first images of a location or a list. Raises EnsueError for other values."""
        size: drawing.ImageSize = self.model.size
        if isinstance(images, str | Path):
            encoding = self.reading(images, encoding)["encoding"]
            options: dict[str, Any] = {"colors": size.colors, "size": size, "limit": MAX_SHOWN_IMAGES}
            return drawing.read_images(str(images), encoding=encoding, **options)
        try:
            arrays = [as_vectors(np.asarray(image), "") for image in images[:MAX_SHOWN_IMAGES]]
            series = [Series(f"image {number}", array.reshape(len(array), -1)) for number, array in enumerate(arrays)]
        except (TypeError, ValueError, DataError):
            series = []
        read = drawing.convert_series(series, colors=size.colors, size=size)
        if read is None:
            raise EnsueError(f"expected a path, or a list of arrays of numbers ({size.rows}, {size.shape[1]})")
        return read

    def protocol(self, scores: Any) -> str:
        methods = {"none": "pixels are probabilities", "threshold": "pixels of 0.5 or more are 1"}
        method = methods.get(self.recipe.data.binarize, "pixels are drawn once, with their values as probabilities")
        return f"nats per image: a bound on -log p(x), by samples of z; {method}"

    def __repr__(self) -> str:
        parameters = f"{self.num_parameters:,} parameters"
        return self._format_repr(self.recipe.describe(), parameters, f"images of {self.model.size}")


STILL = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tiff")
ANIMATED = (".gif", ".apng")
ANIMATION_SECONDS, LAST_FRAME_SECONDS = 4.0, 2.0
"""The duration of all frames of an animation except the last, and the duration of the last frame."""
PIXEL_SIDE = 3
"""The number of pixels of the picture per pixel of an image, in both directions."""


def is_animated(path: Path) -> bool:
    """Return whether the suffix is one of `ANIMATED`."""
    return path.suffix.lower() in ANIMATED


def draw_canvases(path: Path, canvases: NDArray[np.float32]) -> str:
    """Write canvases (N, T, H, W) or (N, T, H, W, colors) as an animation, or as tiles: a row for each sample if T > 1.

    Returns a line for the user.
    """
    count, times, *_ = canvases.shape
    side = math.ceil(math.sqrt(count))
    line = f"wrote {path}: {count:,} sample{'s' if count > 1 else ''}"
    if is_animated(path):
        _save(path, [tile_images(canvases[:, time], columns=side) for time in range(times)])
        return f"{line}, {times:,} frames each"
    _save(path, [tile_images(canvases.reshape(-1, *canvases.shape[2:]), columns=side if times == 1 else times)])
    return line if times == 1 else f"{line}, a row of {times:,} canvases for each"


def tile_images(images: NDArray[np.float32], *, columns: int) -> NDArray[np.uint8]:
    """Return images (N, H, W) or (N, H, W, colors) as tiles with gray lines between them."""
    rows = math.ceil(len(images) / columns)
    _, height, width, *colors = images.shape
    line = 1
    picture = np.full((rows * (height + line) - line, columns * (width + line) - line, *colors), 128, np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top, left = row * (height + line), column * (width + line)
        picture[top : top + height, left : left + width] = np.round(255 * image).astype(np.uint8)
    return picture.repeat(PIXEL_SIDE, 0).repeat(PIXEL_SIDE, 1)


def _save(path: Path, pictures: list[NDArray[np.uint8]]) -> None:
    from PIL import Image  # noqa: PLC0415 (slow to import)

    first, *others = (Image.fromarray(picture) for picture in pictures)
    animation: dict[str, Any] = {}
    if is_animated(path):
        frame_ms, last_ms = max(20, round(1000 * ANIMATION_SECONDS / len(pictures))), round(1000 * LAST_FRAME_SECONDS)
        durations = [frame_ms] * len(others) + [last_ms]
        animation = {"save_all": True, "append_images": others, "duration": durations, "loop": 0}
    with atomic_output(path) as partial:
        first.save(partial, Image.registered_extensions()[path.suffix.lower()], **animation)
