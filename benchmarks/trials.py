"""A recipe trained on a data set and scored, once with each seed."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine

import ensue


@dataclass(frozen=True)
class Trial:
    """A recipe, the paths of its data, and what it is scored on."""

    recipe: str
    train: str
    valid: str
    scored: str
    settings: Sequence[str] = ()
    others: Callable[[Any, str], dict[str, Any]] = lambda model, path: {}
    """Other scores of a pipeline on a file."""

    def scores(self, out: Path) -> dict[str, Any]:
        """The scores and the seconds of training. A run that is there goes on from where it is."""
        model = ensue.train(
            self.recipe, train=self.train, valid=self.valid, out=out, threads=1,
            settings=self.settings, resume=out.exists(),
        )  # fmt: skip
        if not (out / "README.md").exists():  # the card comes last
            raise SystemExit(f"{out}: interrupted, and not scored; with --keep the same command goes on")
        torch.set_num_threads(1)
        scores = model.evaluate(self.scored).as_json()
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return {
            **scores,
            **self.others(model, self.scored),
            "seconds": max(record.get("seconds", 0.0) for record in records),
        }


def trial_arguments(parser: argparse.ArgumentParser, names: Sequence[str]) -> argparse.Namespace:
    """The command line, with the arguments that all such benchmarks have."""
    parser.add_argument("names", nargs="+", choices=names)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--recipe", help="another recipe than the one that a data set is meant for")
    parser.add_argument("--dev", action="store_true", help="score the development data instead of the test data")
    parser.add_argument("--keep", type=Path, help="the folder of the runs; they go on from where they are")
    return parser.parse_args()


def print_scores(given: argparse.Namespace, trial_of: Callable[[str, Path], Trial]) -> None:
    """A line for each score of each name, the mean over seeds. `trial_of` may write data into its folder."""
    torch.set_num_threads(1)
    print(describe_machine(seed=0), file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.names:
            runs = [
                seeded(trial_of(name, folder), given, seed).scores(folder / f"{name}-{seed}")
                for seed in range(given.seeds)
            ]
            for key, value in runs[0].items():
                if isinstance(value, int | float):
                    values = [run[key] for run in runs]
                    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                    print(f"{name}\t{key}\t{statistics.mean(values):.4g}{spread}", flush=True)


def seeded(trial: Trial, given: argparse.Namespace, seed: int) -> Trial:
    """The trial as it is given on the command line, with a seed."""
    settings = (*trial.settings, *given.set, f"train.seed={seed}")
    scored = trial.valid if given.dev else trial.scored
    return replace(trial, recipe=given.recipe or trial.recipe, scored=scored, settings=settings)
