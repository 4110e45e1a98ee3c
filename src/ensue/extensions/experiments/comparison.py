"""Runs of one task side by side: scores, sizes, times, recipes, and whether a difference is more than chance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ensue.data.files import Location, one_location
from ensue.errors import DataError, EnsueError, RunError, listed
from ensue.inspection.notebook import Shown, table_section
from ensue.inspection.page import Section
from ensue.library import load
from ensue.metrics.scores import RESAMPLES, Difference, ScoredItems, differences
from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.pictures import TONES, axes_of, written
from ensue.runs.reporter import MetricsLog

FOR_PEOPLE = ("about", "source", "measured")


@dataclass(frozen=True)
class ComparedRun:
    """A run in a comparison. `differences` are those of its scores to the scores of the first run."""

    run: str
    model: str
    parameters: int
    bytes: int
    steps: int
    training_seconds: float
    scoring_seconds: float | None
    scores: dict[str, float]
    differences: dict[str, Difference] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The run as JSON values."""
        return {**vars(self), "differences": {name: found.as_json() for name, found in self.differences.items()}}


@dataclass(frozen=True)
class Comparison(Shown):
    """Runs of one task. `data` are what they were scored on, `items` what was drawn anew for the differences.

    `recipes` has the keys in which the recipes differ, each with the value of every run.
    """

    what: str
    data: str
    items: str
    runs: tuple[ComparedRun, ...]
    recipes: dict[str, list[Any]]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "what": self.what,
            "data": self.data,
            "items": self.items,
            "resamples": RESAMPLES,
            "runs": [run.as_json() for run in self.runs],
            "recipes": self.recipes,
            "notes": list(self.notes),
        }

    def _pieces(self) -> list[Section]:
        about = {"run": "", "model": "", "parameters": 0, "steps": 0, "training_seconds": 0.0}
        runs = [{key: getattr(run, key) for key in about} | run.scores for run in self.runs]
        tested = [
            {"run": run.run, "score": name.replace("_", " "), **found.as_json()}
            for run in self.runs
            for name, found in run.differences.items()
        ]
        keys = [
            {"key": key, **{run.run: value for run, value in zip(self.runs, row, strict=True)}}
            for key, row in self.recipes.items()
        ]
        return [
            *(Section("", "inspection/plain.html", {"note": note, "shown": ""}) for note in self.notes),
            *table_section(runs, f"{len(runs)} runs, each a {self.what}"),
            *table_section(tested, f"Differences to {self.runs[0].run}, with the interval of 95 %"),
            *table_section(keys, "Keys in which the recipes differ"),
        ]

    def plot(self, score: str = "", *, ax: Any = None) -> Any:
        """Draws a score of each run with matplotlib, on the axes `ax` or new ones; returns them. Where the difference
        to the first run was tested, its interval of 95 % is drawn at the score.

        By default it is the first score that all runs have. Raises EnsueError for a score that they do not have.
        """
        names = [name for name in self.runs[0].scores if all(name in run.scores for run in self.runs)]
        if not names or (score and score not in names):
            raise EnsueError(f'no score "{score}" of all runs; expected {listed(names) or "runs with scores"}')
        score = score or names[0]
        base = self.runs[0].scores[score]
        axes = axes_of(ax, 6.4, 1.2 + 0.4 * len(self.runs))
        for place, run in enumerate(self.runs):
            axes.plot(run.scores[score], place, "o", color=TONES[0])
            if (found := run.differences.get(score)) is not None:
                axes.plot([base + found.low, base + found.high], [place, place], color=TONES[0], linewidth=1.3)
        axes.axvline(base, color=TONES[4], linewidth=0.8, linestyle="--")
        axes.set_yticks(range(len(self.runs)), [run.run for run in self.runs], **written())
        axes.set(xlabel=score.replace("_", " "), ylim=(len(self.runs) - 0.5, -0.5))
        axes.grid(axis="x", alpha=0.25)
        return axes


def compare(
    runs: Sequence[str | Path],
    *,
    test: Location = "",
    encoding: str = "utf-8",
    device: str = "auto",
    format: str = "",
) -> Comparison:
    """Compares finished runs of one task, on the data `test`, or on those that all of them name in their recipes.

    If there are none, the scores are those that the runs have kept, and no difference is tested. `format` is that of
    labeled data. Raises EnsueError for less than two runs, and for runs of several tasks.
    """
    directories = [RunDirectory(run) for run in runs]
    _check(directories, format)
    options = {"encoding": encoding, **({"format": format} if format else {})}
    recipes = [directory.recipe for directory in directories]
    data = one_location(test, "test") or _common_data(recipes)
    notes: list[str] = []
    scored = _scored(directories, data, notes, is_asked=bool(test), device=device, **options)
    first = scored[0][1]
    found = (scored[0][0], *(_compared(run, items, first) for run, items in scored[1:]))
    if first is not None and not all(run.differences for run in found[1:]):
        notes.append("the runs read the data in other items, so not every difference is tested")
    return Comparison(
        directories[0].entry.what,
        data if first is not None or scored[0][0].scoring_seconds is not None else "",
        "" if first is None else f"{first.size:,} {first.unit}",
        found,
        _different(recipes),
        tuple(notes),
    )


def _check(directories: Sequence[RunDirectory], format: str) -> None:
    if len(directories) < 2:
        raise EnsueError("compare takes two runs, or more")
    first = directories[0]
    if format and "format" not in first.entry.options("evaluate"):
        raise EnsueError(f"{first.path}: a {first.entry.what} has no --format")
    for other in directories[1:]:
        if other.entry != first.entry:
            raise RunError(
                f"{other.path}: a {other.entry.what}, and {first.path} is a {first.entry.what}; "
                "expected runs of one task"
            )


def _common_data(recipes: Sequence[Recipe]) -> str:
    """The test data that all recipes name, else the validation data that all of them name, else ""."""
    for name in ("test", "valid"):
        paths = {getattr(recipe.data, name) for recipe in recipes}
        if len(paths) == 1 and "" not in paths:
            return str(paths.pop())
    return ""


def _scored(
    directories: Sequence[RunDirectory], data: str, notes: list[str], *, is_asked: bool, device: str, **options: Any
) -> list[tuple[ComparedRun, ScoredItems | None]]:
    if data:
        try:
            return [_read(directory, data, notes, device=device, **options) for directory in directories]
        except DataError as error:
            if is_asked:
                raise
            notes[:] = [f"the data of the recipes cannot be scored ({error}); --test names others"]
    else:
        notes.append("the recipes name no data in common; --test names what all runs are scored on")
    return [
        (_facts(directory, load(directory.path, device=device), _kept(directory)), None) for directory in directories
    ]


def _read(
    directory: RunDirectory, data: str, notes: list[str], *, device: str, **options: Any
) -> tuple[ComparedRun, ScoredItems | None]:
    """A run with its scores on the data, and the items that they are made of."""
    pipeline = load(directory.path, device=device)
    began = time.perf_counter()
    items: ScoredItems | None = pipeline.scored_items(data, **options)
    if items is None:
        scores = _numbers(pipeline.evaluate(data, **options).as_json())
    else:
        scores = items.whole()
        notes += [f"{directory.given}: {remark}" for remark in items.remarks]
    return _facts(directory, pipeline, scores, time.perf_counter() - began), items


def _facts(
    directory: RunDirectory, pipeline: Any, scores: dict[str, float], scoring_seconds: float | None = None
) -> ComparedRun:
    records = MetricsLog(directory.metrics).records()
    return ComparedRun(
        run=directory.given,
        model=directory.recipe.describe(),
        parameters=pipeline.num_parameters,
        bytes=directory.weights_entry.bytes,
        steps=max((record["step"] for record in records), default=0),
        training_seconds=max((record.get("seconds", 0.0) for record in records), default=0.0),
        scoring_seconds=scoring_seconds,
        scores=scores,
    )


def _kept(directory: RunDirectory) -> dict[str, float]:
    """The scores that a run has kept: on its test data, else the best on its validation data."""
    records = MetricsLog(directory.metrics).records()
    best: list[dict[str, Any]] = [record for record in records if record["kind"] == "valid" and record["best"]]
    tested = [record for record in records if record["kind"] == "test"]
    return _numbers((tested or best)[-1]["scores"]) if tested or best else {}


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    """The scores that are means and shares; whole numbers are counts."""
    return {name: value for name, value in scores.items() if isinstance(value, float)}


def _compared(run: ComparedRun, items: ScoredItems | None, first: ScoredItems | None) -> ComparedRun:
    return run if items is None or first is None else replace(run, differences=differences(items, first))


def _different(recipes: Sequence[Recipe]) -> dict[str, list[Any]]:
    values = [recipe.values() for recipe in recipes]
    keys = dict.fromkeys(key for flat in values for key in flat if key not in FOR_PEOPLE)
    rows = {key: [flat.get(key) for flat in values] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}
