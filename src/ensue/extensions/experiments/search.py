"""Hyperparameter search with Optuna.

The folder of a search has trials, a journal, `best.toml`, README.md and a picture. A trial is an ordinary run. Several
processes may work on the same search, and an interrupted search is resumed.
"""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ensue.errors import EnsueError, RecipeError, RunError, TrainingError
from ensue.extension import output_directory
from ensue.extensions.experiments.space import Choice, Range, Space, check_optuna
from ensue.parsing import ParseError, parse_json, read_bounded
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.pictures import make_optional, picture
from ensue.runs.reporter import MetricsLog, Reporter, Validation
from ensue.runs.weights import partial_path, write_text
from ensue.training.run import train_run

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "begun", "WAITING": "begun"}
LINE_CHARACTERS = 18
"""The width at which the names of choices below a picture are wrapped, in characters."""


def write_page(folder: Path, study: Any, space: Space, recipe: Recipe, reporter: Reporter) -> None:
    """Write the best recipe, the page and the picture of a search; without a complete trial, write nothing."""
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if not complete:
        return
    best = min(complete, key=lambda trial: (trial.value, trial.number))
    about = f"trial {best.number} of a search of {len(trials)} trials"
    write_text(folder / "best.toml", read_recipe(recipe, {**_read_values(best, space), "about": about}).to_toml())
    importances = _compute_importances(study, space)
    picture_path = folder / "search.png"
    make_optional(picture_path, lambda: draw_trials(picture_path, complete, space, importances), reporter)
    write_text(folder / "README.md", "\n".join(_page(folder, trials, best, space, importances)) + "\n")


def _read_values(trial: Any, space: Space) -> dict[str, Any]:
    from optuna.trial import FixedTrial  # noqa: PLC0415 (an extra)

    fixed = FixedTrial(trial.params)
    return {key: values.suggest(fixed, key) for key, values in space.items() if key in trial.params}


def _compute_importances(study: Any, space: Space) -> dict[str, float]:
    """Return the share of each key in the variance of the scores (PED-ANOVA, Watanabe et al. 2023); {} if unknown."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # noqa: PLC0415 (an extra)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shares: dict[str, float] = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # raised for too few trials
        return {}
    return {key: share for key, share in shares.items() if key in space}


def _page(folder: Path, trials: list[Any], best: Any, space: Space, importances: dict[str, float]) -> Iterator[str]:
    """Yield the lines of README.md."""
    path = shlex.quote(str(folder))
    counts = [f"{sum(STATES[t.state.name] == name for t in trials)} {name}" for name in dict.fromkeys(STATES.values())]
    yield from (f"# {folder.name}", "", f"{len(trials)} trials: {', '.join(c for c in counts if c[0] != '0')}.", "")
    yield f"The best trial is {best.number}, with the lowest score, {best.value:.4f}. Train it again:"
    yield from ("", "```", f"ensue train {path}/best.toml --out ANOTHER", "```", "", "![Scores by key](search.png)", "")
    if importances:
        yield from ("| key | share of the variance |", "|---|---|")
        yield from (f"| {key} | {share:.0%} |" for key, share in importances.items())
        yield ""
    yield f"| trial | score | {' | '.join(space)} | run |"
    yield "|---" * (len(space) + 3) + "|"
    for trial in sorted(trials, key=lambda t: (t.state.name != "COMPLETE", t.value is None, t.value or 0, t.number)):
        state = STATES[trial.state.name]
        score = f"{trial.value:.4f}" if state == "complete" else state
        values = _read_values(trial, space)
        cells = [format_value(values[key], choices) if key in values else "-" for key, choices in space.items()]
        yield f"| {trial.number} | {score} | {' | '.join(cells)} | `trials/{trial.number:04}` |"


def format_value(value: Any, choices: Range | Choice) -> str:
    """Return a short form of a value. A table among several tables is shown by the keys in which they differ."""
    tables = choices.samples if isinstance(choices, Choice) else ()
    if len(tables) > 1 and all(isinstance(table, dict) for table in tables):
        keys = dict.fromkeys(chain.from_iterable(tables))
        differing = [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]
        value = ", ".join(f"{key} {value[key]}" for key in differing if key in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def draw_trials(path: Path, complete: list[Any], space: Space, importances: dict[str, float]) -> None:
    """Draw a panel for each key, ordered by importance: the scores of complete trials over the values of the key."""
    keys = [*importances, *(key for key in space if key not in importances)]
    rows = -(-len(keys) // 3)
    with picture(path, (9.0, 2.9 * rows)) as figure:
        for number, key in enumerate(keys, start=1):
            axes = figure.add_subplot(rows, min(3, len(keys)), number)
            values = [_read_values(trial, space)[key] for trial in complete]
            choices = space[key]
            is_range = isinstance(choices, Range)
            points = values if is_range else [fill(format_value(value, choices), LINE_CHARACTERS) for value in values]
            axes.scatter(points, [trial.value for trial in complete], s=14, color="#1f4e79", alpha=0.7)
            if isinstance(choices, Range) and choices.log:
                axes.set_xscale("log")
            axes.set(xlabel=key + (f" ({importances[key]:.0%})" if key in importances else ""), ylabel="score")
            axes.grid(alpha=0.25)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)


class TrialReporter(Reporter):
    """A reporter that passes validation scores to the study, which may prune the trial."""

    def __init__(self, trial: Any, reported: dict[int, float], run: Path, reporter: Reporter) -> None:
        self.trial, self.reporter, self.log = trial, reporter, MetricsLog(run / "metrics.jsonl")
        self.reported = reported
        """The scores that the study already has, by the number of the validation."""
        self.pruned = bool(reported) and trial.should_prune()

    def noted(self, note: str) -> None:
        self.reporter.noted(note)

    def validated(self, validation: Validation) -> None:
        number = sum(record["kind"] == "valid" for record in self.log.records())
        if number not in self.reported:  # a resumed run may repeat a validation
            self.reported[number] = validation.selection
            self.trial.report(validation.selection, number)
        self.pruned = self.trial.should_prune()

    def is_enough(self) -> bool:
        return self.pruned


def run_trial(
    trial: Any, reported: dict[int, float], recipe: Recipe, values: dict[str, Any], run: Path, reporter: Reporter,
    **options: Any,
) -> tuple[str, float | None]:  # fmt: skip
    """Train or resume the run of a trial; return its state (after a failure the message) and the lowest score."""
    trial_reporter = TrialReporter(trial, reported, run, reporter)
    try:
        trial_recipe = read_recipe(recipe, values)
        outcome = train_run(trial_recipe, run, resume=RunDirectory(run).exists, reporter=trial_reporter, **options)
    except (TrainingError, RecipeError) as error:
        return str(error), None
    if outcome.reason == "interrupted":
        return "interrupted", None
    if not trial_reporter.reported:
        raise EnsueError("no validation data to compare trials; --valid names validation data")
    is_pruned = trial_reporter.pruned and outcome.reason == "stopped early"
    return "pruned" if is_pruned else "complete", min(trial_reporter.reported.values())


class Study:
    """The trials of a search in a journal, a file that several processes may share.

    The values of a trial depend on the seed, the number of the trial, and the trials that ended before it began. So
    with one process, a search that was killed and resumed has the trials of an uninterrupted search. The trial of a
    killed process is resumed before a new trial begins.
    """

    def __init__(self, folder: Path, space: Space, *, seed: int, prune: bool) -> None:
        import optuna  # noqa: PLC0415 (an extra)
        from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna, self.folder, self.space, self.seed = optuna, folder, space, seed
        self.lock = FileLock(folder / ".lock")
        journal = folder / "journal.jsonl"
        lock: Any = FileLock(folder / ".journal.lock")  # unlike Optuna's, released when its process is killed
        with self.lock, lock:
            content = journal.read_bytes() if journal.exists() else b""
            if content and not content.endswith(b"\n"):
                os.truncate(journal, content.rfind(b"\n") + 1)
        pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
            with self.lock:
                self.study = optuna.create_study(
                    storage=storage, study_name="search", direction="minimize", pruner=pruner, load_if_exists=True
                )
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            raise RunError(f"{journal}: damaged: {error}") from None

    @contextmanager
    def next(self, max_trials: int) -> Iterator[tuple[Any, dict[str, Any]] | None]:
        """Lock the next trial during the `with` block. Yield the trial with its values, or None after `max_trials`."""
        with self.lock:
            claimed = self._resume_abandoned() or self._start_new(max_trials)
            values = {} if claimed is None else self._suggest_values(claimed[0])
        if claimed is None:
            yield None
            return
        try:
            yield claimed[0], values
        finally:
            claimed[1].release()

    def _resume_abandoned(self) -> tuple[Any, FileLock] | None:
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state == self.optuna.trial.TrialState.RUNNING:
                lock = self._make_lock(trial.number)
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    continue
                self._set_sampler(trial.number)
                return self.optuna.trial.Trial(self.study, trial._trial_id), lock
        return None

    def _start_new(self, max_trials: int) -> tuple[Any, FileLock] | None:
        number = len(self.study.get_trials(deepcopy=False))
        if number >= max_trials:
            return None
        lock = self._make_lock(number)
        lock.acquire(timeout=0)
        self._set_sampler(number)
        return self.study.ask(), lock

    def _suggest_values(self, trial: Any) -> dict[str, Any]:
        suggested = {}
        for index, (key, values) in enumerate(self.space.items(), 1):
            self._set_sampler(trial.number, index)  # the process may have been killed between two values
            suggested[key] = values.suggest(trial, key)
        return suggested

    def _set_sampler(self, *key: int) -> None:
        seed = int(np.random.SeedSequence((self.seed, *key)).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)

    def _make_lock(self, number: int) -> FileLock:
        folder = self.folder / "locks"
        folder.mkdir(exist_ok=True)
        return FileLock(folder / f"{number:04}")


PLAN_FILE = "search.json"


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; `state` is "complete", "pruned", "interrupted", or a message of failure."""

    number: int
    run: Path
    values: dict[str, Any]
    state: str
    score: float | None


def search(
    recipe: Recipe, space: Space, out: str | Path, *, trials: int, seed: int = 0, prune: bool = True,
    reporter: Reporter | None = None, on_trial: Callable[[TrialResult], object] = lambda result: None, **options: Any,
) -> bool:  # fmt: skip
    """Run trials until the search has `trials` trials, and write the page and the best recipe after each trial.

    `options` are arguments of `train_run`. Returns False after Ctrl-C, with the running trial saved. An existing search
    with the same plan is resumed. Raise RunError if the folder has other content.
    """
    check_optuna()
    folder, reporter = output_directory(out), reporter or Reporter()
    begin_search(folder, {"recipe": recipe.values(), "space": {key: values.as_json() for key, values in space.items()},
                   "seed": seed, "prune": prune})  # fmt: skip
    study, is_running = Study(folder, space, seed=seed, prune=prune), True
    while is_running:
        with study.next(trials) as claimed:
            if claimed is None:
                break
            trial, values = claimed
            run = folder / "trials" / f"{trial.number:04}"
            reported = dict(study.study.get_trials(deepcopy=True)[trial.number].intermediate_values)
            state, score = run_trial(trial, reported, recipe, values, run, reporter, **options)
            is_running = state != "interrupted"
            if is_running:
                _report_result(study, trial, state, score)
                with study.lock:
                    write_page(folder, study.study, space, recipe, reporter)
            on_trial(TrialResult(trial.number, run, values, state, score))
    return is_running


def _report_result(study: Study, trial: Any, state: str, score: float | None) -> None:
    states = study.optuna.trial.TrialState
    if state == "complete":
        study.study.tell(trial, score)
        return
    if state != "pruned":
        trial.set_user_attr("failed", state)
    study.study.tell(trial, state=states.PRUNED if state == "pruned" else states.FAIL)


def begin_search(folder: Path, plan: dict[str, Any]) -> None:
    """Create the folder of a search. Raise RunError if the folder exists and is not a search with this plan."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; --out names a directory")
    path = folder / PLAN_FILE
    if folder.is_dir() and not path.exists():
        others = sorted(file.name for file in folder.iterdir() if file.name not in (".lock", partial_path(path).name))
        if others:
            raise RunError(f"{folder}: not empty, and not a search (found {others[0]}); choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not path.exists():
                write_text(path, json.dumps(plan, indent=2) + "\n")
                return
            stored = parse_json(read_bounded(path))
    except ParseError as error:
        raise RunError(f"{path}: damaged: {error}") from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be written ({error.strerror or error})") from None
    if not isinstance(stored, dict):
        raise RunError(f"{path}: damaged: not a JSON object")
    flat, expected = _flatten(stored), _flatten(json.loads(json.dumps(plan)))
    for key in {**expected, **flat}:
        if flat.get(key) != expected.get(key):
            old, new = (json.dumps(values.get(key), ensure_ascii=False)[:200] for values in (flat, expected))
            raise RunError(f"{folder}: another search (found {key} = {old}; expected {new}); choose another --out")


def _flatten(plan: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in plan.items():
        flat |= {f"{name}: {key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    return flat


class SearchReporter(Reporter):
    """A reporter that prints each distinct note of the runs once."""

    def __init__(self) -> None:
        self.printed: set[str] = set()

    def noted(self, note: str) -> None:
        if note not in self.printed:
            self.printed.add(note)
            print(f"note: {note}", file=sys.stderr)


def trial_line(result: TrialResult) -> str:
    """Return a line with the number, the state, the score and the values of a trial."""
    values = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in
                      result.values.items())  # fmt: skip
    score = "" if result.score is None else f" {result.score:.4f}"
    return f"trial {result.number}: {result.state}{score}  {values}"
