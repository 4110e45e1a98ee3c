"""Images whose rows are frames: idx, as MNIST has it, and all that Pillow reads. Values are from 0 to 1."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import whole_bytes
from ensue.errors import DataError
from ensue.extensions.frames.data.series import Series, SeriesOptions, as_vectors

IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
LABELS = (("images", "labels"), ("idx3", "idx1"))
"""Parts of the name of a file of images, and the parts in their place in the name of its labels."""
GRAY = {"1", "L", "LA", "La"}
COLORED = {"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"}


def read_idx(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """The images (N, rows, columns) of an idx file, with the labels of the file beside it, if there is one."""
    images = _read_idx(path)
    if images.ndim != 3:
        raise DataError(f"an array of {images.ndim} dimensions; expected images (N, rows, columns)", path)
    beside = labels_beside(path)
    labels = _read_idx(beside) if beside is not None else None
    if labels is not None and (labels.shape != images.shape[:1] or labels.dtype.kind not in "iu"):
        raise DataError(f"{labels.dtype} of the shape {labels.shape}; expected {len(images):,} whole numbers", beside)
    scale = 255 if images.dtype == np.uint8 else 1
    for number, image in enumerate(images):
        own = () if labels is None else (str(int(labels[number])),)
        frames = as_vectors(image / scale, str(path))
        yield Series(f"{path.name}[{number}]", frames, own, place=(str(path), None), colors=1)


def labels_beside(path: Path) -> Path | None:
    """The file of labels that belongs to a file of images: `t10k-labels-idx1-ubyte` to `t10k-images-idx3-ubyte`."""
    name = path.name
    for of_images, of_labels in LABELS:
        name = name.replace(of_images, of_labels)
    found = path.with_name(name)
    return found if name != path.name and found.is_file() else None


def _read_idx(path: Path) -> NDArray[Any]:
    content = whole_bytes(path)
    zeros, kind, dimensions = content[:2], content[2:3], content[3:4]
    if len(content) < 4 or zeros != b"\0\0" or kind[0] not in IDX_TYPES:
        raise DataError("damaged, or no idx file", path)
    start = 4 + 4 * dimensions[0]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    dtype = np.dtype(IDX_TYPES[kind[0]])
    if len(shape) != dimensions[0] or len(content) - start != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{len(content):,} bytes, which an idx file of the shape {shape} has not", path)
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def read_image(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """The rows of an image, each (columns,) if it is gray, or (columns · 3,) if it has colors."""
    try:
        from PIL import Image  # noqa: PLC0415
    except ImportError:
        raise DataError('images need Pillow: pip install "ensue[images]"', path) from None

    content = whole_bytes(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of images so large that they may be meant to fill the memory
            image: Any = Image.open(io.BytesIO(content))
            mode = image.mode
            pixels = np.asarray(image.convert("L" if mode in GRAY else "RGB")) if mode in GRAY | COLORED else None
    except Exception as error:  # Pillow raises errors of many kinds for damaged files
        reason = f" ({error})" if "<" not in str(error) else ""  # which names an object in memory
        raise DataError(f"damaged, or no image{reason}", path) from None
    if pixels is None:
        raise DataError(f"an image of the mode {mode}; expected 8 bits for each color", path)
    frames = (pixels.reshape(len(pixels), -1) / 255).astype(np.float32)
    yield Series(path.name, frames, place=(str(path), None), colors=1 if pixels.ndim == 2 else 3)
