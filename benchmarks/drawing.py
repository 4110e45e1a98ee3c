"""DRAW on real data: the bound in nats per image, with and without attention.

    python benchmarks/drawing.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--keep FOLDER]

DATA is a folder with `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`. In file order, 8,000 images are for
training, 1,000 for validation and 1,000 for testing. A run trains with one thread, and keeps the weights of the best
validation. The test images are scored once: the bound, its terms, and an estimate by importance sampling. The pixels of
validation and test images are sampled once. `--keep` keeps the runs, for `ensue generate`.

- attention: the recipe `draw`
- whole: without attention
"""

from __future__ import annotations

import argparse
from pathlib import Path

from frames import write_mnist
from trials import Trial, print_scores, trial_arguments

SETTINGS = {
    "attention": (),
    "whole": ("canvas.attention=false", "train.learning_rate=0.002", "train.precision=bfloat16"),
}
NUM_SAMPLES = 50


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """Write the data, and return the trial."""
    train, valid, test = write_mnist(data / "mnist_t10k", folder)
    return Trial(
        "draw", train, valid, test, SETTINGS[name],
        lambda model, path: {"importance_nats": model.evaluate(path, draws=NUM_SAMPLES)["importance_nats"]},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    arguments = trial_arguments(parser, tuple(SETTINGS))
    print_scores(arguments, lambda name, folder: trial_of(arguments.data, name, folder))


if __name__ == "__main__":
    main()
