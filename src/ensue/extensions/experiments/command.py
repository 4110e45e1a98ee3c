"""The commands about many runs: search finds the best values of a recipe, compare puts runs side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.cli.training import recipe_of
from ensue.console.output import importing_torch
from ensue.outputs import Access
from ensue.processor import keep_freed_memory

if TYPE_CHECKING:  # they need torch, which takes seconds to import
    from ensue.extensions.experiments.comparison import ComparedRun, Comparison


def search(
    recipe: Annotated[str, Argument(help="A recipe's name or a TOML file."), Access.RECIPE],
    space: Annotated[Path, Option(help="A TOML file with ranges and choices of keys."), Access.DATA],
    trials: Annotated[int, Option(min=1, max=1_000_000, help="How many trials in all.")],
    out: Annotated[Path, Option(help="The folder of the search; one that is there goes on."), Access.OUT_FOLDER],
    train: cli.TrainOption = None,
    valid: cli.ValidOption = None,
    test: cli.TestOption = None,
    settings: cli.SettingsOption = None,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The seed of the search.")] = 0,
    prune: Annotated[bool, Option("--prune/--no-prune", help="End trials that are worse than most.")] = True,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
) -> None:
    """Find the best values of a recipe by many runs."""
    from ensue.extensions.experiments.search.space import read_space
    from ensue.extensions.experiments.search.study import check_optuna

    check_optuna()
    chosen = recipe_of(recipe, settings or [], train=train, valid=valid, test=test)
    known = read_space(space, chosen)
    with importing_torch():
        from ensue.extensions.experiments.search.search import SearchReporter, trial_line
        from ensue.extensions.experiments.search.search import search as searched
    keep_freed_memory()
    ended = searched(
        chosen, known, out, trials=trials, seed=seed, prune=prune, reporter=SearchReporter(),
        told=lambda result: cli.say(trial_line(result)), device=device, threads=threads,
    )  # fmt: skip
    if not ended:
        cli.say(f"saved; the same command goes on with {cli.quoted(out)}")
        raise typer.Exit(130)
    if (best := out / "best.toml").exists():
        cli.say(f"wrote {out}: README.md, search.png, best.toml; try\n  ensue train {cli.quoted(best)} --out best")


def compare(
    runs: Annotated[list[Path], Argument(help="Run directories of one task, or hf:NAME."), Access.RUN],
    test: Annotated[
        list[str] | None,
        Option(
            help="Data that all runs are scored on; default: those that their recipes have in common; may be repeated."
        ),
        Access.DATA,
    ] = None,
    format: Annotated[str, Option(help="The format of labeled data; default: by name and first lines.")] = "",
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
    encoding: cli.EncodingOption = "utf-8",
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
) -> None:
    """Put runs of one task side by side."""
    from ensue.runs.hub import found_run

    for run in runs:
        found_run(run)
    with importing_torch():
        import torch

        from ensue.extensions.experiments.comparison import compare as compared
    torch.set_num_threads(threads or 1)
    found = compared(runs, test=test or "", encoding=encoding, device=device, format=format)
    for note in found.notes:
        cli.say(f"note: {note}")
    print(json.dumps(found.as_json()) if as_json else "\n".join(comparison_lines(found)))


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The tables of `ensue compare`, in Markdown."""
    from ensue.metrics.scores import RESAMPLES

    runs = comparison.runs
    names = list(dict.fromkeys(name for run in runs for name in run.scores))
    yield f"{len(runs)} runs, each a {comparison.what}, " + (
        f"scored on `{comparison.data}`." if comparison.data else "with the scores that they have kept."
    )
    yield ""
    head = ["run", "model", "parameters", "MB", "steps", "training (s)", *map(_words, names)]
    yield from _table(head, [_row(run, names) for run in runs])
    if any(run.differences for run in runs):
        yield ""
        yield (
            f"Differences to `{runs[0].run}`, with the interval of 95 % and the probability of such a difference by "
            f"chance: paired bootstrap, {RESAMPLES:,} samples of {comparison.items}."
        )
        yield ""
        yield from _table(["run", "score", "difference", "95 %", "p"], list(_differences(runs)))
    if comparison.recipes:
        yield ""
        rows = [[key, *map(_value, row)] for key, row in comparison.recipes.items()]
        yield from _table(["key", *(f"`{run.run}`" for run in runs)], rows)


def _row(run: ComparedRun, names: Sequence[str]) -> list[str]:
    numbers = [f"{run.parameters:,}", f"{run.bytes / 1e6:.2f}", f"{run.steps:,}", f"{run.training_seconds:,.1f}"]
    return [f"`{run.run}`", run.model, *numbers, *(_number(run.scores.get(name)) for name in names)]


def _differences(runs: Sequence[ComparedRun]) -> Iterator[list[str]]:
    for run in runs:
        for name, found in run.differences.items():
            interval = f"{found.low:+.4f} to {found.high:+.4f}"
            yield [f"`{run.run}`", _words(name), f"{found.value:+.4f}", interval, f"{found.p:.3f}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}" if abs(value) < 1000 else f"{value:,.1f}"


def _value(value: Any) -> str:
    return "-" if value is None or value == "" else " ".join(f"{value}".split())
