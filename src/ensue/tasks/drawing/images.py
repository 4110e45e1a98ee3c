"""Images in memory, of one size, and how their pixels become 0 or 1."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.frames.series import Reading, Series
from ensue.data.frames.source import FrameSource
from ensue.errors import DataError
from ensue.models.painter import ImageSize
from ensue.tasks.frames.data import check_image

Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class Images:
    """Images (N, H, P·W), whose P colors are planes side by side. Values are from 0 to 1."""

    pixels: Pixels
    size: ImageSize
    groups: tuple[str, ...] = ()
    """The group of each image that the data name; empty if they name none."""

    @property
    def sources(self) -> Sequence[Hashable]:
        """The group of each image; without groups its pixels."""
        return self.groups or [hashlib.sha256(image.tobytes()).digest() for image in self.pixels]

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The images in these rows."""
        groups = tuple(self.groups[row] for row in rows.tolist()) if self.groups else ()
        return replace(self, pixels=self.pixels[rows], groups=groups)

    def __len__(self) -> int:
        return len(self.pixels)


def read_images(
    location: str, *, colors: int, encoding: str = "utf-8", size: ImageSize | None = None, most: int | None = None,
    group: str = "",
) -> Images:  # fmt: skip
    """The images of a file, a folder or a glob, or the first `most` of them. With a `size` they have to have it, and
    with a `group` one of that name. Raises DataError for images of several sizes, for values that are not from 0 to 1,
    and for what is no image.
    """
    source = FrameSource(location, Reading(encoding=encoding, group=group))
    images = images_of(islice(source, most), colors=colors, size=size, group=group)
    if images is None:
        raise DataError("no image in it", location)
    return images


def images_of(
    series: Iterable[Series], *, colors: int, size: ImageSize | None = None, group: str = ""
) -> Images | None:
    """Series as images; None for no series. Raises DataError as `read_images`."""
    found: list[Pixels] = []
    groups: list[str] = []
    first = "the training data"
    for one in series:
        if size is None:
            size, first = _size(one, colors), one.name
        found.append(_checked(one, size, first))
        if group:
            groups.append(one.named_group(group))
    return None if size is None or not found else Images(np.stack(found), size, tuple(groups))


def _size(series: Series, colors: int) -> ImageSize:
    rows, width = series.frames.shape
    check_image(series, colors=colors, key="canvas.colors")
    return ImageSize(rows, width // colors, colors)


def _checked(series: Series, size: ImageSize, first: str) -> Pixels:
    """The planes (H, P·W) of an image."""
    values = series.frames
    if series.channels:
        raise series.error(f"{series.name}: a sound; expected images")
    if values.shape != size.shape:
        found, wanted = (f"{rows} × {width // size.colors}" for rows, width in (values.shape, size.shape))
        raise series.error(f"{series.name}: an image of {found}; expected {wanted}, as in {first}")
    wrong = values[~((values >= 0) & (values <= 1))]  # NaN too
    if wrong.size:
        raise series.error(f"{series.name}: a pixel of {wrong[0]:g}; expected values from 0 to 1")
    return values.reshape(size.rows, size.columns, size.colors).transpose(0, 2, 1).reshape(size.shape)


def as_colors(pixels: Pixels, size: ImageSize) -> Pixels:
    """Planes (N, H, P·W) as images (N, H, W, P)."""
    return pixels.reshape(len(pixels), size.rows, size.colors, size.columns).transpose(0, 1, 3, 2)


def drawn_pixels(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """0 or 1, each pixel 1 with the probability of its value."""
    return (generator.random(pixels.shape, np.float32) < pixels).astype(np.float32)


def binarized(images: Images, how: str) -> Images:
    """Images for scores, which do not change from call to call: the draws of an image depend on its number alone."""
    if how == "none":
        return images
    if how == "threshold":
        return replace(images, pixels=(images.pixels >= 0.5).astype(np.float32))
    drawn = [drawn_pixels(image, np.random.default_rng(number)) for number, image in enumerate(images.pixels)]
    return replace(images, pixels=np.stack(drawn))
