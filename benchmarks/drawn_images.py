"""Synthetic images with captions: strips of handwritten digits, and scenes of colored shapes.

    python benchmarks/drawn_images.py OUT strips|scenes ... [--data DATA]

The files in OUT, such as `strips-train.npz`, have `frames` (N, rows, columns · channels) with values from 0 to 1, and
the caption of each image as its label. Strips need DATA, a folder with
`mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`.

- strips: one to five digits from left to right in an image of 32 × 144 pixels, with random gaps and vertical positions,
  and a caption such as "three seven one". In file order, 8,000 images of digits are for training, 1,000 for validation
  and 1,000 for testing
- scenes: one or two shapes in an image of 48 × 48 pixels with three color channels, and a caption such as "a large red
  cross" or "a small blue circle above a large red square". If the horizontal distance of the shapes is larger than the
  vertical one, the left shape is named first, else the upper one. Each image of `scenes-held-out` has a combination of
  color and shape in HELD_OUT, which the other files never have
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
STRIP_SHAPE, DIGIT_SIZE, MAX_DIGITS = (32, 144), 28, 5
MIN_STEP = 24
"""The minimum number of pixels between the left edges of two digits. The empty margins of digits may overlap."""

SCENES = {"train": 10_000, "valid": 1_000, "test": 1_000, "held-out": 1_000}
SCENE_SIZE = 48
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
"""The standard deviation of the noise in each pixel of a scene."""


def draw_strips(data: Path, out: Path) -> list[str]:
    """Draw the strips unless the files exist. Return the paths for training, validation and testing."""
    paths = [out / f"strips-{part}.npz" for part in STRIPS]
    if not all(path.exists() for path in paths):
        digits = list(FrameSource(data / "mnist_t10k" / "t10k-images-idx3-ubyte.gz", SeriesOptions()))
        for path, (part, count) in zip(paths, STRIPS.items(), strict=True):
            write(path, generate_strips(digits[slice(*PARTS[part])], count, np.random.default_rng(PARTS[part][0])))
    return [str(path) for path in paths]


def generate_strips(digits: list[Any], count: int, generator: Random) -> Captioned:
    """Yield `count` strips. All digits are used about equally often."""
    order: list[int] = []
    for _ in range(count):
        length = int(generator.integers(1, MAX_DIGITS + 1))
        if len(order) < length:
            order += generator.permutation(len(digits)).tolist()
        sampled = [digits[order.pop(0)] for _ in range(length)]
        yield draw_strip(sampled, generator), " ".join(DIGITS[int(digit.labels[0])] for digit in sampled)


def draw_strip(digits: list[Any], generator: Random) -> Image:
    """Draw digits from left to right. The free width is divided at random among the gaps and both ends."""
    image = np.zeros(STRIP_SHAPE, np.float32)
    free = STRIP_SHAPE[1] - DIGIT_SIZE - MIN_STEP * (len(digits) - 1)
    gaps = np.diff([0, *sorted(generator.integers(0, free + 1, len(digits)).tolist())])
    x = 0
    for digit, gap in zip(digits, gaps, strict=True):
        x, y = x + int(gap), int(generator.integers(0, STRIP_SHAPE[0] - DIGIT_SIZE + 1))
        place = image[y : y + DIGIT_SIZE, x : x + DIGIT_SIZE]
        np.maximum(place, digit.frames, out=place)
        x += MIN_STEP
    return image


def draw_scenes(out: Path) -> list[str]:
    """Draw the scenes unless the files exist. Return the paths for training, validation, testing, and held-out
    combinations.
    """
    paths = [out / f"scenes-{part}.npz" for part in SCENES]
    for number, (path, (part, count)) in enumerate(zip(paths, SCENES.items(), strict=True)):
        if not path.exists():
            write(path, generate_scenes(count, np.random.default_rng(number), held_out=part == "held-out"))
    return [str(path) for path in paths]


def generate_scenes(count: int, generator: Random, *, held_out: bool) -> Captioned:
    """Yield `count` scenes. If `held_out`, each has a held-out combination of color and shape, else none has."""
    while count:
        names = [tuple(str(generator.choice(list(part))) for part in (SIZES, COLORS, SHAPES)) for _ in range(2)]
        names = names[: int(generator.integers(1, 3))]
        places = [generator.uniform(SIZES[size], SCENE_SIZE - SIZES[size], 2) for size, _, _ in names]
        if any(name[1:] in HELD_OUT for name in names) != held_out or not _are_apart(names, places):
            continue
        count -= 1
        yield draw_scene(names, places, generator), caption(names, places)


def _are_apart(names: list[Any], places: list[Any]) -> bool:
    """Whether two shapes do not touch, and the horizontal and vertical distances are clearly different."""
    if len(names) == 1:
        return True
    horizontal, vertical = abs(places[0] - places[1])
    no_contact = max(horizontal, vertical) > sum(SIZES[size] for size, _, _ in names)
    return no_contact and abs(horizontal - vertical) > 4


def caption(names: list[Any], places: list[Any]) -> str:
    """Return the caption: one shape, or two shapes with their spatial relation."""
    phrases = [f"a {' '.join(name)}" for name in names]
    if len(names) == 1:
        return phrases[0]
    axis = int(np.argmax(abs(places[0] - places[1])))
    first, second = (phrases[number] for number in np.argsort([place[axis] for place in places]))
    return f"{first} {('left of', 'above')[axis]} {second}"


def draw_scene(names: list[Any], places: list[Any], generator: Random) -> Image:
    """Draw shapes. Return an array (rows, columns · channels)."""
    image = np.zeros((SCENE_SIZE, SCENE_SIZE, 3), np.float32)
    y, x = np.mgrid[:SCENE_SIZE, :SCENE_SIZE] + 0.5
    for (size, color, shape), place in zip(names, places, strict=True):
        image[SHAPES[shape]((x - place[0]) / SIZES[size], (y - place[1]) / SIZES[size])] = COLORS[color]
    image += generator.normal(0, NOISE, image.shape).astype(np.float32)
    return (image.clip(0, 1) * 255).round().reshape(SCENE_SIZE, -1) / 255


def write(path: Path, captioned: Captioned) -> None:
    """Write a file of images with their captions."""
    images, captions = zip(*captioned, strict=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, frames=np.stack(images), labels=captions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+", choices=("strips", "scenes"))
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    if "strips" in arguments.names and arguments.data is None:
        parser.error("strips need --data")
    for name in arguments.names:
        paths = draw_strips(arguments.data, arguments.out) if name == "strips" else draw_scenes(arguments.out)
        print(*paths, sep="\n")


if __name__ == "__main__":
    main()
