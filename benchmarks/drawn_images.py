"""Images that code draws, with captions: strips of handwritten digits, and scenes of colored shapes.

    python benchmarks/drawn_images.py OUT strips|scenes ... [--data DATA]

OUT gets files such as `strips-train.npz`: `frames` (N, rows, columns · channels), from 0 to 1, and a caption for each
image as its label. DATA is a folder with `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`, for strips.

- strips: one to five digits from left to right in 32 × 144 pixels. All are of one size, as a camera's pictures are.
  Gaps and heights are drawn. "three seven one". The digits of train, valid and test are other images,
  8,000 / 1,000 / 1,000 by order
- scenes: one shape, or two, in 48 × 48 pixels of three colors. "a large red cross", "a small blue circle above a large
  red square". The shape on the left, or above, is named first, by the larger of the two distances. `scenes-held-out`
  has in each image one of the pairs of color and shape in HELD_OUT, which the other files never have
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from frames import PARTS
from numpy.typing import NDArray

from ensue.extensions.frames.data.series import SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

Image = NDArray[np.float32]
Captioned = Iterator[tuple[Image, str]]
Random = np.random.Generator

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
STRIPS = {"train": 16_000, "valid": 1_000, "test": 1_000}
STRIP, DIGIT, MOST_DIGITS = (32, 144), 28, 5
LEAST_STEP = 24
"""Pixels from the left edge of a digit to that of the next one; the margins of MNIST's digits may overlap."""

SCENES = {"train": 10_000, "valid": 1_000, "test": 1_000, "held-out": 1_000}
SCENE = 48
COLORS = {
    "red": (1.0, 0.1, 0.1), "green": (0.1, 0.8, 0.1), "blue": (0.2, 0.3, 1.0),
    "yellow": (1.0, 0.9, 0.1), "white": (1.0, 1.0, 1.0), "purple": (0.7, 0.1, 0.8),
}  # fmt: skip
SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "circle": lambda x, y: x**2 + y**2 <= 1,
    "square": lambda x, y: (abs(x) <= 0.9) & (abs(y) <= 0.9),
    "triangle": lambda x, y: (abs(y) <= 0.9) & (2 * abs(x) <= y + 0.95),
    "cross": lambda x, y: (abs(x) <= 0.35) & (abs(y) <= 1) | (abs(y) <= 0.35) & (abs(x) <= 1),
}
SIZES = {"small": 4.5, "large": 8.0}
"""Half of a shape's side, in pixels."""
HELD_OUT = {("red", "triangle"), ("green", "circle"), ("blue", "square"), ("yellow", "cross")}
NOISE = 0.05
"""The deviation of the noise in each pixel of a scene."""


def strips(data: Path, out: Path) -> list[str]:
    """The paths of the strips for training, validation and testing, drawn unless they are there."""
    paths = [out / f"strips-{part}.npz" for part in STRIPS]
    if not all(path.exists() for path in paths):
        digits = list(FrameSource(data / "mnist_t10k" / "t10k-images-idx3-ubyte.gz", SeriesOptions()))
        for path, (part, count) in zip(paths, STRIPS.items(), strict=True):
            write(path, strips_of(digits[slice(*PARTS[part])], count, np.random.default_rng(PARTS[part][0])))
    return [str(path) for path in paths]


def strips_of(digits: list[Any], count: int, draw: Random) -> Captioned:
    """Strips of some of the digits, each of which is taken about equally often."""
    order: list[int] = []
    for _ in range(count):
        length = int(draw.integers(1, MOST_DIGITS + 1))
        if len(order) < length:
            order += draw.permutation(len(digits)).tolist()
        chosen = [digits[order.pop(0)] for _ in range(length)]
        yield strip(chosen, draw), " ".join(DIGITS[int(digit.labels[0])] for digit in chosen)


def strip(digits: list[Any], draw: Random) -> Image:
    """The digits from left to right; what is free is shared out at random among the gaps and both ends."""
    image = np.zeros(STRIP, np.float32)
    free = STRIP[1] - DIGIT - LEAST_STEP * (len(digits) - 1)
    gaps = np.diff([0, *sorted(draw.integers(0, free + 1, len(digits)).tolist())])
    x = 0
    for digit, gap in zip(digits, gaps, strict=True):
        x, y = x + int(gap), int(draw.integers(0, STRIP[0] - DIGIT + 1))
        place = image[y : y + DIGIT, x : x + DIGIT]
        np.maximum(place, digit.frames, out=place)
        x += LEAST_STEP
    return image


def scenes(out: Path) -> list[str]:
    """The paths of the scenes for training, validation, testing, and with compositions held out."""
    paths = [out / f"scenes-{part}.npz" for part in SCENES]
    for number, (path, (part, count)) in enumerate(zip(paths, SCENES.items(), strict=True)):
        if not path.exists():
            write(path, scenes_of(count, np.random.default_rng(number), is_new=part == "held-out"))
    return [str(path) for path in paths]


def scenes_of(count: int, draw: Random, *, is_new: bool) -> Captioned:
    """Scenes of one or two shapes. `is_new`: in each is a composition that is held out; else none is."""
    while count:
        names = [tuple(str(draw.choice(list(part))) for part in (SIZES, COLORS, SHAPES)) for _ in range(2)]
        names = names[: int(draw.integers(1, 3))]
        places = [draw.uniform(SIZES[size], SCENE - SIZES[size], 2) for size, _, _ in names]
        if any(name[1:] in HELD_OUT for name in names) != is_new or not _apart(names, places):
            continue
        count -= 1
        yield scene(names, places, draw), caption(names, places)


def _apart(names: list[Any], places: list[Any]) -> bool:
    """Whether two shapes do not touch, and one of their distances, across or down, is clearly larger."""
    if len(names) == 1:
        return True
    across, down = abs(places[0] - places[1])
    return max(across, down) > sum(SIZES[size] for size, _, _ in names) and abs(across - down) > 4


def caption(names: list[Any], places: list[Any]) -> str:
    """What the grammar says: the shape, or the first one, how the second one lies to it, and the second."""
    phrases = [f"a {' '.join(name)}" for name in names]
    if len(names) == 1:
        return phrases[0]
    axis = int(np.argmax(abs(places[0] - places[1])))
    first, second = (phrases[number] for number in np.argsort([place[axis] for place in places]))
    return f"{first} {('left of', 'above')[axis]} {second}"


def scene(names: list[Any], places: list[Any], draw: Random) -> Image:
    """The picture as rows of columns of colors."""
    image = np.zeros((SCENE, SCENE, 3), np.float32)
    y, x = np.mgrid[:SCENE, :SCENE] + 0.5
    for (size, color, shape), place in zip(names, places, strict=True):
        image[SHAPES[shape]((x - place[0]) / SIZES[size], (y - place[1]) / SIZES[size])] = COLORS[color]
    image += draw.normal(0, NOISE, image.shape).astype(np.float32)
    return (image.clip(0, 1) * 255).round().reshape(SCENE, -1) / 255


def write(path: Path, captioned: Captioned) -> None:
    """A file of images with their captions."""
    images, captions = zip(*captioned, strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, frames=np.stack(images), labels=captions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+", choices=("strips", "scenes"))
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if "strips" in given.names and given.data is None:
        parser.error("strips need --data")
    for name in given.names:
        print(*(strips(given.data, given.out) if name == "strips" else scenes(given.out)), sep="\n")


if __name__ == "__main__":
    main()
