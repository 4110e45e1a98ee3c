"""Comparison of runs of one task: scores, sizes, times, recipes, and tests of the differences of scores."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import abspath, relpath
from pathlib import Path
from typing import Any

from ensue.data.files import Data, as_location, locations_in
from ensue.errors import DataError, EnsueError, RunError, list_names
from ensue.extensions.experiments.changes import COMPARED, Bound, Changes, count_changes
from ensue.inspection.notebook import Shown, table_section
from ensue.inspection.page import Section
from ensue.library import load
from ensue.metrics.scores import RESAMPLES, ScoreDifference, ScoredItems, differences
from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.pictures import LINE_COLORS, axes_of, literal_text_options
from ensue.runs.reporter import MetricsLog

NOTE_KEYS = ("about", "source", "measured")
"""Keys of a recipe that are notes for readers."""


@dataclass(frozen=True)
class ComparedRun:
    """A run in a comparison, with its number of `parameters`, and the size of its weights in `bytes`.

    `differences` are the run's scores minus the scores of the first run.
    """

    run: str
    model: str
    parameters: int
    bytes: int
    steps: int
    training_seconds: float
    scoring_seconds: float | None
    scores: dict[str, float]
    differences: dict[str, ScoreDifference] = field(default_factory=dict)
    changes: Changes | None = None
    """The comparison with the first run's answers, for classifiers and taggers; None for the first run."""

    def as_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        tested = {name: difference.as_json() for name, difference in self.differences.items()}
        return {
            **vars(self), "differences": tested, "changes": None if self.changes is None else self.changes.as_json(),
        }  # fmt: skip


@dataclass(frozen=True)
class Comparison(Shown):
    """A comparison of runs of one task. `what` is the noun for their models.

    `data` is the location of the data on which the runs were scored. `items` describes the items that the bootstrap
    resamples. `recipes` maps each key in which the recipes differ to the value of each run.
    """

    what: str
    data: str
    items: str
    runs: tuple[ComparedRun, ...]
    recipes: dict[str, list[Any]]
    notes: tuple[str, ...]
    bounds: tuple[Bound, ...] = ()
    """The required bounds on the last run, with their values."""

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        runs = [run.as_json() for run in self.runs]
        bounds = [{"bound": each.text, "value": each.value, "holds": each.holds} for each in self.bounds]
        return {**vars(self), "runs": runs, "resamples": RESAMPLES, "notes": list(self.notes), "bounds": bounds}

    def tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yield tables with their titles. The first row of a table has the names of the columns."""
        runs = self.runs
        names = list(dict.fromkeys(name for run in runs for name in run.scores))
        scores = f"scored on `{self.data}`." if self.data else "with the scores of their logs."
        head = ["run", "model", "parameters", "MB", "steps", "training (s)"]
        head += [name.replace("_", " ") for name in names]
        yield f"{len(runs)} runs, each a {self.what}, {scores}", [head, *(_format_row(run, names) for run in runs)]
        if any(run.differences for run in runs):
            title = (
                f"Differences to `{runs[0].run}`, with 95 % confidence intervals and p-values: paired bootstrap, "
                f"{RESAMPLES:,} samples of {self.items}."
            )
            yield title, [["run", "score", "difference", "95 %", "p"], *_format_differences(runs)]
        for run in runs:
            if run.changes is not None:
                rows = [[*x[:5], f"{x.probability:.3f}", x.text] for x in run.changes.most_certain]
                head = ["change", "place", "gold", "old", "new", "P(new)", "text"]
                yield run.changes.summary(f"`{run.run}`") + ".", [head, *rows]
        if self.recipes:
            rows = [[key, *("-" if value in (None, "") else " ".join(f"{value}".split()) for value in row)]
                    for key, row in self.recipes.items()]  # fmt: skip
            yield "", [["key", *(f"`{run.run}`" for run in runs)], *rows]

    def _sections(self) -> list[Section]:
        notes = [Section("", "inspection/plain.html", {"note": note, "shown": ""}) for note in self.notes]
        tables = ((name, [dict(zip(head, row, strict=True)) for row in rows]) for name, (head, *rows) in self.tables())
        return notes + [section for title, rows in tables for section in table_section(rows, title or "Recipes")]

    def plot(self, score: str = "", *, ax: Any = None) -> Any:
        """Draw a score of each run, with the 95 % confidence interval if the difference to the first run is tested.

        Args:
            score: The name of a score; default: the first score that all runs have.
            ax: Axes of matplotlib; default: new axes.

        Returns:
            The axes.

        Raises:
            EnsueError: A run does not have the score.
        """
        names = [name for name in self.runs[0].scores if all(name in run.scores for run in self.runs)]
        if not names or (score and score not in names):
            raise EnsueError(f'score "{score}": not in all runs; expected {list_names(names) or "runs with scores"}')
        score = score or names[0]
        base = self.runs[0].scores[score]
        axes = axes_of(ax, 6.4, 1.2 + 0.4 * len(self.runs))
        for row, run in enumerate(self.runs):
            axes.plot(run.scores[score], row, "o", color=LINE_COLORS[0])
            if (difference := run.differences.get(score)) is not None:
                interval = [base + difference.low, base + difference.high]
                axes.plot(interval, [row, row], color=LINE_COLORS[0], linewidth=1.3)
        axes.axvline(base, color=LINE_COLORS[4], linewidth=0.8, linestyle="--")
        axes.set_yticks(range(len(self.runs)), [run.run for run in self.runs], **literal_text_options())
        axes.set(xlabel=score.replace("_", " "), ylim=(len(self.runs) - 0.5, -0.5))
        axes.grid(axis="x", alpha=0.25)
        return axes


def compare(
    runs: Sequence[str | Path], *, test: Data = "", encoding: str | None = None, device: str = "auto",
    format: str = "", columns: Mapping[str, str] | None = None, require: Sequence[str] = (),
) -> Comparison:  # fmt: skip
    """Compare finished runs of one task.

    Args:
        runs: Two run directories or more.
        test: The data on which the runs are scored; default: the test or validation data that all recipes name. Without
            such data the scores come from the logs, and differences are not tested.
        encoding: The encoding of the data; default: the encoding of the training data.
        device: The device of the models.
        format: The format of labeled data; default: by name and first lines.
        columns: The columns of the data, the arguments of `Pipeline.with_columns`; default: as in the training data.
        require: Bounds such as "f1 >= 0.9" on scores of the last run, and on the shares of answers that became wrong
            or right ("lost <= 0.5 %"). `bounds` of the result has their values.

    Raises:
        EnsueError: There are fewer than two runs, the runs have several tasks, or a bound is malformed.
    """
    for bound in require:
        Bound.parse(bound)
    if len(runs) < 2:
        raise EnsueError("expected two or more runs")
    first, *others = directories = [RunDirectory(run) for run in runs]
    known_options = first.entry.options("evaluate") | {*first.entry.pipeline_class.column_options}
    if unknown := min({*(columns or {}), *(["format"] if format else [])} - known_options, default=""):
        raise EnsueError(f"{first.path}: a {first.entry.what} has no --{unknown}")
    for other in others:
        if other.entry != first.entry:
            tasks = f"a {other.entry.what}, and {first.path} is a {first.entry.what}"
            raise RunError(f"{other.path}: {tasks}; expected runs of the same task")
    options = {"encoding": encoding, "format": format}
    recipes = [directory.recipe for directory in directories]
    requested = as_location(test, "test")
    data = requested or _find_common_data(directories)
    notes: list[str] = []

    def open_run(directory: RunDirectory) -> Any:
        return load(directory.path, device=device).with_columns(**columns or {})

    scored = _score(directories, data, notes, open_run, is_requested=bool(requested or columns or format), **options)
    base_items = scored[0][1]
    compared = [
        run if items is None or base_items is None else replace(run, differences=differences(items, base_items))
        for run, items in scored[1:]
    ]
    if base_items is not None and first.entry.pipeline_class in COMPARED:
        old, *new_pipelines = map(open_run, directories)
        try:
            changed = [count_changes(old, new, data, **old.reading(data, **options)) for new in new_pipelines]
            compared = [replace(run, changes=changes) for run, changes in zip(compared, changed, strict=True)]
        except EnsueError as error:
            notes.append(str(error))
    if base_items is not None and not all(run.differences for run in compared):
        notes.append("not every difference is tested: the runs read different items from the data")
    values = compared[-1].scores | ({} if (last := compared[-1].changes) is None else last.shares)
    if base_items is not None and not {Bound.parse(bound).name for bound in require} <= {*values, "lost", "won"}:
        last_pipeline = open_run(directories[-1])
        scores = last_pipeline.evaluate(data, **last_pipeline.reading(data, **options))
        values = _select_numbers(scores.as_json()) | values
    return Comparison(
        first.entry.what, data if base_items is not None or scored[0][0].scoring_seconds is not None else "",
        "" if base_items is None else f"{base_items.size:,} {base_items.unit}", (scored[0][0], *compared),
        _compare_recipes(recipes), tuple(notes), tuple(Bound.parse(bound).with_value(values) for bound in require),
    )  # fmt: skip


def _find_common_data(directories: Sequence[RunDirectory]) -> str:
    """Return the test data that all runs share, by path or fingerprint, else shared validation data, else ""."""
    for name in ("test", "valid"):
        paths = [getattr(directory.recipe.data, name) for directory in directories]
        digests = {directory.config.get("held_out", {}).get(name) for directory in directories}
        if all(paths) and (len({*paths}) == 1 or (len(digests) == 1 and None not in digests)):
            return str(paths[0])
    return ""


def _explain_missing_data(directories: Sequence[RunDirectory]) -> str:
    """Return a note with the reason why differences are not tested."""
    data = [directory.recipe.data for directory in directories]
    splits = {(directory.config.get("text"), directory.recipe.data.valid_fraction) for directory in directories}
    if len(splits) == 1 and not any(table.valid or table.test for table in data):
        return (
            f"all runs held out the same share of {data[0].train} for validation, so the table has the logged scores; "
            "--test DATA scores all runs on DATA, and tests the differences"
        )
    return "the recipes have no data in common; --test names data for all runs"


def _score(
    directories: Sequence[RunDirectory], data: str, notes: list[str], open_run: Callable[[RunDirectory], Any], *,
    is_requested: bool, **options: Any,
) -> list[tuple[ComparedRun, ScoredItems | None]]:  # fmt: skip
    if data:
        try:
            return [_score_run(directory, data, notes, open_run, **options) for directory in directories]
        except DataError as error:
            if is_requested:
                raise
            notes[:] = [f"the data of the recipes cannot be scored ({error}); --test names other data"]
    else:
        notes.append(_explain_missing_data(directories))
    return [
        (_describe_run(directory, open_run(directory), _read_logged_scores(directory)), None)
        for directory in directories
    ]


def _score_run(
    directory: RunDirectory, data: str, notes: list[str], open_run: Callable[[RunDirectory], Any], **options: Any
) -> tuple[ComparedRun, ScoredItems | None]:
    """Return a run with its scores on the data, and the statistics of the scored items."""
    pipeline = open_run(directory)
    train, test = ({*map(abspath, locations_in(where))} for where in (directory.recipe.data.train, data))
    if files := list_names([*map(relpath, sorted(train & test))]):
        notes.append(f"{directory.argument} was trained on {files}, so its scores are too good")
    options = pipeline.reading(data, **options)
    start = time.perf_counter()
    items: ScoredItems | None = pipeline.scored_items(data, **options)
    if items is None:
        scores = _select_numbers(pipeline.evaluate(data, **options).as_json())
    else:
        scores = items.compute()
        notes += [f"{directory.argument}: {remark}" for remark in items.remarks]
    return _describe_run(directory, pipeline, scores, time.perf_counter() - start), items


def _describe_run(
    directory: RunDirectory, pipeline: Any, scores: dict[str, float], scoring_seconds: float | None = None
) -> ComparedRun:
    records = [*MetricsLog(directory.metrics).records()]
    return ComparedRun(
        run=directory.argument, model=directory.recipe.describe(), parameters=pipeline.num_parameters,
        bytes=directory.weights_entry.bytes, steps=max((record["step"] for record in records), default=0),
        training_seconds=max((record.get("seconds", 0.0) for record in records), default=0.0),
        scoring_seconds=scoring_seconds, scores=scores,
    )  # fmt: skip


def _read_logged_scores(directory: RunDirectory) -> dict[str, float]:
    """Return the scores in the log of a run: the test scores, else the validation scores of the best weights."""
    records = [*MetricsLog(directory.metrics).records()]
    best: list[dict[str, Any]] = [record for record in records if record["kind"] == "valid" and record["best"]]
    tested = [record for record in records if record["kind"] == "test"]
    return _select_numbers((tested or best)[-1]["scores"]) if tested or best else {}


def _select_numbers(scores: dict[str, Any]) -> dict[str, float]:
    """Return the scores that are means or shares, which are floats; integers are counts."""
    return {name: value for name, value in scores.items() if isinstance(value, float)}


def _compare_recipes(recipes: Sequence[Recipe]) -> dict[str, list[Any]]:
    """Return the values of each key in which the recipes differ. If the `kind` of a table such as `[encoder]` differs,
    only keys of the table that all recipes have are returned.
    """
    values = [recipe.values() for recipe in recipes]
    keys = dict.fromkeys(key for by_key in values for key in by_key if key not in NOTE_KEYS)
    rows = {key: [by_key.get(key) for by_key in values] for key in keys}
    differing = {key: row for key, row in rows.items() if any(value != row[0] for value in row)}
    prefixes = {key.removesuffix("kind") for key in differing if key.endswith(".kind")}  # such as "encoder."
    return {key: row for key, row in differing.items() if None not in row or not key.startswith((*prefixes,))}


def _format_row(run: ComparedRun, names: Sequence[str]) -> list[str]:
    numbers = [f"{run.parameters:,}", f"{run.bytes / 1e6:.2f}", f"{run.steps:,}", f"{run.training_seconds:,.1f}"]
    return [f"`{run.run}`", run.model, *numbers, *(_format_number(run.scores.get(name)) for name in names)]


def _format_differences(runs: Sequence[ComparedRun]) -> Iterator[list[str]]:
    for run in runs:
        for name, difference in run.differences.items():
            interval = f"{difference.low:+.4f} to {difference.high:+.4f}"
            title, value = name.replace("_", " "), f"{difference.value:+.4f}"
            yield [f"`{run.run}`", title, value, interval, f"{difference.p:.3f}"]


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}" if abs(value) < 1000 else f"{value:,.1f}"
