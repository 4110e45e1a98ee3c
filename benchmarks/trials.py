"""Training and scoring of a recipe with several seeds."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from json_lines import training_seconds
from machine import describe_machine
from settings import merge_settings

import ensue


@dataclass(frozen=True)
class Trial:
    """A recipe, the paths of its data, and the path of the data on which it is scored."""

    recipe: str
    train: str
    valid: str
    scored: str
    settings: Sequence[str] = ()
    extra_scores: Callable[[Any, str], dict[str, Any]] = lambda model, path: {}
    """A function that returns further scores of a pipeline on a file."""

    def scores(self, out: Path) -> dict[str, Any]:
        """Train the recipe, or resume its run. Return the scores and the seconds of training."""
        model = ensue.train(
            self.recipe, train=self.train, valid=self.valid, out=out, threads=1,
            settings=merge_settings(self.settings), resume=out.exists(),
        )  # fmt: skip
        if not (out / "README.md").exists():  # the model card is written last
            raise SystemExit(f"{out}: interrupted before the scores; with --keep the same command resumes the run")
        torch.set_num_threads(1)
        scores = model.evaluate(self.scored).as_json()
        return {**scores, **self.extra_scores(model, self.scored), "seconds": training_seconds(out)}


def trial_arguments(parser: argparse.ArgumentParser, names: Sequence[str]) -> argparse.Namespace:
    """Add the common arguments of these benchmarks to a parser, and parse the command line."""
    parser.add_argument("names", nargs="+", choices=names)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--recipe", help="a recipe in place of the default recipe of the data set")
    parser.add_argument("--dev", action="store_true", help="score the development data instead of the test data")
    parser.add_argument("--keep", type=Path, help="the folder in which runs are kept and resumed")
    return parser.parse_args()


def print_scores(arguments: argparse.Namespace, make_trial: Callable[[str, Path], Trial]) -> None:
    """Print the mean over seeds of each score, for each name. `make_trial` may write data to the folder it receives."""
    torch.set_num_threads(1)
    print(describe_machine(seed=0), file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.names:
            runs = [
                apply_arguments(make_trial(name, folder), arguments, seed).scores(folder / f"{name}-{seed}")
                for seed in range(arguments.seeds)
            ]
            for key, value in runs[0].items():
                if isinstance(value, int | float):
                    values = [run[key] for run in runs]
                    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                    print(f"{name}\t{key}\t{statistics.mean(values):.4g}{spread}", flush=True)


def apply_arguments(trial: Trial, arguments: argparse.Namespace, seed: int) -> Trial:
    """Return the trial with the recipe and settings of the command line and with a seed."""
    if arguments.dev and not trial.valid:
        raise SystemExit(
            f"{trial.train}: no development data; metrics.jsonl of the run has scores on held-out training data"
        )
    settings = (*trial.settings, *arguments.set, f"train.seed={seed}")
    scored = trial.valid if arguments.dev else trial.scored
    return replace(trial, recipe=arguments.recipe or trial.recipe, scored=scored, settings=settings)
