"""Runs side by side as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ensue.comparison import ComparedRun, Comparison
from ensue.metrics.scores import RESAMPLES


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The tables of `ensue compare`."""
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
