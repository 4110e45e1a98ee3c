"""Captions of images that code draws: strips of handwritten digits, and scenes of colored shapes.

    python benchmarks/captions.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--keep FOLDER]

DATA is a folder with `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`. `drawn_images.py` says what is drawn. Runs
train with one thread. The test data are scored once.

- strips, strips-hard: strips, with soft and with hard attention
- scenes: `held_out` is the share of exact captions for compositions of color and shape that training never had, `color`
  and `shape` the shares of those of them whose color, and whose shape, is right
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from drawn_images import HELD_OUT, scenes, strips
from trials import Trial, print_scores, trial_arguments

SETTINGS = {
    "strips": (),
    "strips-hard": ("attention.hard=true",),
    "scenes": ("grid.colors=3", "grid.halvings=3"),
}


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """The data of that name, drawn into the folder."""
    if name != "scenes":
        return Trial("caption-lstm", *strips(data, folder), SETTINGS[name])
    *parts, held_out = scenes(folder)
    return Trial("caption-lstm", *parts, SETTINGS[name], lambda model, path: of_compositions(model, held_out))


def of_compositions(model: Any, path: str) -> dict[str, float]:
    """What is right of the compositions that are held out, in captions of the right length."""
    series = list(model.source(path))
    found = [
        (one.labels[0].split(), said.text.split()) for one, said in zip(series, model.predict(series), strict=True)
    ]
    seen = [
        (text[place] == right[place], text[place + 1] == right[place + 1])
        for right, text in found
        for place in range(len(right) - 1)
        if (right[place], right[place + 1]) in HELD_OUT and len(text) == len(right)
    ]
    exact = sum(right == text for right, text in found) / len(found)
    colors, shapes = (sum(part) / len(seen) for part in zip(*seen, strict=True))
    return {"held_out": exact, "color": colors, "shape": shapes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    given = trial_arguments(parser, tuple(SETTINGS))
    print_scores(given, lambda name, folder: trial_of(given.data, name, folder))


if __name__ == "__main__":
    main()
