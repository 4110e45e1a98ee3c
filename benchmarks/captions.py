"""Captions of synthetic images: strips of handwritten digits, and scenes of colored shapes.

    python benchmarks/captions.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--keep FOLDER]

DATA is a folder with `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`. `drawn_images.py` describes the images. Runs
train with one thread. The test data are scored once.

- strips, strips-hard: strips, with soft and with hard attention
- scenes: `held_out` is the share of exact captions on images with combinations of color and shape that training lacks.
  `color` and `shape` are the shares of these combinations with the right color and with the right shape, in captions
  of the right length
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from drawn_images import HELD_OUT, draw_scenes, draw_strips
from trials import Trial, print_scores, trial_arguments

SETTINGS = {
    "strips": (),
    "strips-hard": ("attention.hard=true",),
    "scenes": ("grid.colors=3", "grid.halvings=3"),
}


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """Draw the images, and return the trial."""
    if name != "scenes":
        train, valid, test = draw_strips(data, folder)
        return Trial("caption-lstm", train, valid, test, SETTINGS[name])
    train, valid, test, held_out = draw_scenes(folder)
    return Trial("caption-lstm", train, valid, test, SETTINGS[name], lambda model, _: score_held_out(model, held_out))


def score_held_out(model: Any, path: str) -> dict[str, float]:
    """Return the shares of exact captions, and of right colors and shapes of the held-out combinations."""
    images = list(model.source(path))
    captions = [
        (image.labels[0].split(), output.text.split())
        for image, output in zip(images, model.predict(images), strict=True)
    ]
    matches = [
        (predicted[place] == gold[place], predicted[place + 1] == gold[place + 1])
        for gold, predicted in captions
        for place in range(len(gold) - 1)
        if (gold[place], gold[place + 1]) in HELD_OUT and len(predicted) == len(gold)
    ]
    exact = sum(gold == predicted for gold, predicted in captions) / len(captions)
    colors, shapes = (sum(column) / len(matches) for column in zip(*matches, strict=True))
    return {"held_out": exact, "color": colors, "shape": shapes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    arguments = trial_arguments(parser, tuple(SETTINGS))
    print_scores(arguments, lambda name, folder: trial_of(arguments.data, name, folder))


if __name__ == "__main__":
    main()
