"""Canvases as a picture of tiles, or as an animated one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensue.errors import EnsueError, nearest

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


def draw_canvases(path: Path, canvases: NDArray[np.float32], frames: int | None = None) -> str:
    """Writes canvases (N, T, H, W) or (N, T, H, W, colors) and says so. Raises EnsueError if it cannot."""
    times = _times(canvases.shape[1], frames)
    if path.suffix.lower() in ANIMATED:
        _save(path, [tiled(canvases[:, time], columns=_side(len(canvases))) for time in times])
        return f"wrote {path}: {_samples(canvases)}, painted in {len(times):,} frames"
    if frames is None:
        _save(path, [tiled(canvases[:, -1], columns=_side(len(canvases)))])
        return f"wrote {path}: {_samples(canvases)}"
    shown = canvases[:, times]
    _save(path, [tiled(shown.reshape(-1, *shown.shape[2:]), columns=len(times))])
    return f"wrote {path}: {_samples(canvases)}, a row for each, after {len(times):,} of {canvases.shape[1]:,} strokes"


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


def _side(count: int) -> int:
    return math.ceil(math.sqrt(count))


def _samples(canvases: NDArray[np.float32]) -> str:
    return f"{len(canvases):,} sample{'s' if len(canvases) > 1 else ''}"


def _times(strokes: int, frames: int | None) -> list[int]:
    """Which states of the canvas are shown: evenly, the last one among them."""
    count = min(frames or strokes, strokes)
    return [math.ceil((number + 1) * strokes / count) - 1 for number in range(count)]


def _save(path: Path, pictures: list[NDArray[np.uint8]]) -> None:
    from PIL import Image  # noqa: PLC0415 (slow to import)

    first, *others = (Image.fromarray(picture) for picture in pictures)
    try:
        if path.suffix.lower() in ANIMATED:
            each = max(20, round(1000 * SECONDS / len(pictures)))
            durations = [each] * len(others) + [round(1000 * LAST)]
            kind = "GIF" if path.suffix.lower() == ".gif" else "PNG"
            first.save(path, kind, save_all=True, append_images=others, duration=durations, loop=0)
        else:
            first.save(path)
    except OSError as error:
        raise EnsueError(f"{path}: the picture cannot be written: {error.strerror or error}") from error
