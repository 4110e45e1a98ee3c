"""The learning curve of the quick start.

    python benchmarks/picture.py TEXT [SECONDS]

The script trains `char-lstm-wide` on TEXT, and writes docs/curve.png.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ensue.console.reporter import ConsoleReporter
from ensue.recipe import read_recipe
from ensue.training.run import train_run

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 300.0
    recipe = read_recipe("char-lstm-wide", {"train.seconds": seconds, "train.validations": 8})
    with tempfile.TemporaryDirectory() as folder, ConsoleReporter() as reporter:
        outcome = train_run(read_recipe(recipe, train=sys.argv[1]), Path(folder) / "run", threads=1, reporter=reporter)
        shutil.copy(outcome.run / "curve.png", DOCS / "curve.png")


if __name__ == "__main__":
    main()
