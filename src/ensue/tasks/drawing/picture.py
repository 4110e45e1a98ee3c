"""Canvases as a picture of tiles, or as an animated one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, nearest
from ensue.runs.weights import written_beside

STILL = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tiff")
ANIMATED = (".gif", ".apng")
SECONDS, LAST = 4.0, 2.0
"""The length of an animation, and how long its end stands."""
SCALE = 3
"""The side of a pixel in the picture."""


def check_picture(path: str | Path) -> None:
    """Raises EnsueError for a suffix that is none of a picture."""
    suffix = Path(path).suffix.lower()
    if suffix not in (*STILL, *ANIMATED):
        known = (*STILL, *ANIMATED)
        raise EnsueError(f'{path}: no picture by its suffix "{suffix}"{nearest(suffix, known)} ({", ".join(known)})')


def shown_strokes(path: Path, strokes: int, frames: int | None) -> list[int]:
    """The strokes behind which a canvas is shown: `frames` of them, evenly, or all in an animation. The last is one."""
    count = min(frames or (strokes if is_animated(path) else 1), strokes)
    return [math.ceil((number + 1) * strokes / count) - 1 for number in range(count)]


def is_animated(path: Path) -> bool:
    """Whether the suffix is that of an animation."""
    return path.suffix.lower() in ANIMATED


def draw_canvases(path: Path, canvases: NDArray[np.float32]) -> str:
    """Writes canvases (N, T, H, W) or (N, T, H, W, colors) and says so: one moment of a still picture as tiles, several
    as a row for each N. Raises EnsueError if it cannot.
    """
    count, times, *_ = canvases.shape
    side = math.ceil(math.sqrt(count))
    said = f"wrote {path}: {count:,} sample{'s' if count > 1 else ''}"
    if is_animated(path):
        _save(path, [tiled(canvases[:, time], columns=side) for time in range(times)])
        return f"{said}, painted in {times:,} frames"
    _save(path, [tiled(canvases.reshape(-1, *canvases.shape[2:]), columns=side if times == 1 else times)])
    return said if times == 1 else f"{said}, a row for each, at {times:,} times"


def tiled(images: NDArray[np.float32], *, columns: int) -> NDArray[np.uint8]:
    """Images (N, H, W) or (N, H, W, colors) as tiles with gray lines between them."""
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
        durations = [max(20, round(1000 * SECONDS / len(pictures)))] * len(others) + [round(1000 * LAST)]
        animation = {"save_all": True, "append_images": others, "duration": durations, "loop": 0}
    try:
        with written_beside(path) as partial:
            first.save(partial, Image.registered_extensions()[path.suffix.lower()], **animation)
    except OSError as error:
        raise EnsueError(f"{path}: the picture cannot be written: {error.strerror or error}") from error
