"""Painters on real data: the bound in nats per image, with and without attention.

    python benchmarks/drawing.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--keep FOLDER]

DATA is a folder with `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`: 8,000 / 1,000 / 1,000 images by order. A run
trains with one thread. The weights are those of the best validation, and the test images are scored once: the bound,
its parts, and an estimate by importance sampling. Pixels of validation and test are drawn once. `--keep` keeps the
runs, for `ensue generate`.

- attention: the recipe `draw`
- whole: without attention
"""

from __future__ import annotations

import argparse
from pathlib import Path

from frames import mnist
from trials import Trial, print_scores, trial_arguments

SETTINGS = {
    "attention": (),
    "whole": ("canvas.attention=false", "train.learning_rate=0.002", "train.precision=bfloat16"),
}
DRAWS = 50


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """The data, written into the folder."""
    train, valid, test = mnist(data / "mnist_t10k", folder)
    return Trial(
        "draw", train, valid, test, SETTINGS[name],
        lambda model, path: {"importance_nats": model.evaluate(path, draws=DRAWS)["importance_nats"]},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    given = trial_arguments(parser, tuple(SETTINGS))
    print_scores(given, lambda name, folder: trial_of(given.data, name, folder))


if __name__ == "__main__":
    main()
