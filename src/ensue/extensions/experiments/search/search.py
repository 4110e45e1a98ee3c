"""A search: its trials, then `best.toml`, the page README.md, and a picture of the importance of keys.

A folder that holds a search is resumed.
"""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

from filelock import FileLock

from ensue.errors import RunError
from ensue.extensions.experiments.search.space import Choice, Range, Space
from ensue.extensions.experiments.search.study import Study, check_optuna, run_trial
from ensue.parsing import ParseError, parse_json
from ensue.recipe import Recipe, read_recipe
from ensue.runs.hub import refuse_hub
from ensue.runs.pictures import made, picture
from ensue.runs.reporter import Reporter
from ensue.runs.weights import partial_of, write_text

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "begun", "WAITING": "begun"}
WIDTH = 18
"""The characters of a line below a picture; a longer name has several lines."""


def write_page(folder: Path, study: Any, space: Space, recipe: Recipe, reporter: Reporter) -> None:
    """Writes the best recipe, the page and the picture of a search so far; without a complete trial, nothing."""
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    if not complete:
        return
    best = min(complete, key=lambda trial: (trial.value, trial.number))
    about = f"trial {best.number} of a search of {len(trials)} trials"
    chosen = read_recipe(recipe, {**_values(best, space), "about": about})
    write_text(folder / "best.toml", chosen.to_toml())
    importances = _importances(study, space)
    picture_path = folder / "search.png"
    made(picture_path, lambda: draw(picture_path, complete, space, importances), reporter)
    write_text(folder / "README.md", "\n".join(_lines(folder, trials, best, space, importances)) + "\n")


def _values(trial: Any, space: Space) -> dict[str, Any]:
    """The values of a trial as they stand in a recipe."""
    drawn = _Drawn(trial.params)
    return {key: values.drawn(drawn, key) for key, values in space.items() if key in trial.params}


class _Drawn:
    """The values that were drawn, as if they were drawn again."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params

    def _found(self, key: str, *args: Any, **kwargs: Any) -> Any:
        return self.params[key]

    suggest_int = suggest_float = suggest_categorical = _found


def _importances(study: Any, space: Space) -> dict[str, float]:
    """The share of each key in how much the scores differ (PED-ANOVA, Watanabe et al. 2023); nothing for few trials."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # noqa: PLC0415 (an extra)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: dict[str, float] = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):  # of too few trials nothing can be said
        return {}
    return {key: share for key, share in found.items() if key in space}


def _lines(folder: Path, trials: list[Any], best: Any, space: Space, importances: dict[str, float]) -> Iterator[str]:
    path = shlex.quote(str(folder))
    counts = [
        f"{sum(STATES[t.state.name] == state for t in trials)} {state}" for state in dict.fromkeys(STATES.values())
    ]
    yield from (f"# {folder.name}", "", f"{len(trials)} trials: {', '.join(c for c in counts if c[0] != '0')}.", "")
    yield f"The best is trial {best.number} with {best.value:.4f}; the lowest score is the best. Train it again:"
    yield from ("", "```", f"ensue train {path}/best.toml --out ANOTHER", "```", "", "![What mattered](search.png)", "")
    if importances:
        yield from ("| key | share of the differences |", "|---|---|")
        yield from (f"| {key} | {share:.0%} |" for key, share in importances.items())
        yield ""
    yield f"| trial | score | {' | '.join(space)} | run |"
    yield "|---" * (len(space) + 3) + "|"
    for trial in sorted(trials, key=lambda t: (t.state.name != "COMPLETE", t.value is None, t.value or 0, t.number)):
        state = STATES[trial.state.name]
        score = f"{trial.value:.4f}" if state == "complete" else state
        values = _values(trial, space)
        shown = " | ".join(in_short(values[key], part) if key in values else "-" for key, part in space.items())
        yield f"| {trial.number} | {score} | {shown} | `trials/{trial.number:04}` |"


def in_short(value: Any, part: Range | Choice) -> str:
    """A value in a few characters; of one of several tables, the keys in which they differ."""
    if isinstance(part, Choice) and len(part.samples) > 1 and all(isinstance(one, dict) for one in part.samples):
        keys = dict.fromkeys(chain.from_iterable(part.samples))
        differing = [key for key in keys if any(one.get(key) != part.samples[0].get(key) for one in part.samples)]
        value = ", ".join(f"{key} {value[key]}" for key in differing if key in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def draw(path: Path, complete: list[Any], space: Space, importances: dict[str, float]) -> None:
    """The score of each trial that has ended over its values, a panel for each key, the most important first."""
    keys = [*importances, *(key for key in space if key not in importances)]
    rows = -(-len(keys) // 3)
    with picture(path, (9.0, 2.9 * rows)) as figure:
        for place, key in enumerate(keys, start=1):
            axes = figure.add_subplot(rows, min(3, len(keys)), place)
            values = [_values(trial, space)[key] for trial in complete]
            part = space[key]
            points = values if isinstance(part, Range) else [fill(in_short(value, part), WIDTH) for value in values]
            axes.scatter(points, [trial.value for trial in complete], s=14, color="#1f4e79", alpha=0.7)
            if isinstance(part, Range) and part.log:
                axes.set_xscale("log")
            share = f" ({importances[key]:.0%})" if key in importances else ""
            axes.set_xlabel(f"{key}{share}")
            axes.grid(alpha=0.25)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)


PLAN = "search.json"


@dataclass(frozen=True)
class TrialResult:
    """How a trial has ended; `state` is "complete", "pruned", "interrupted", or what has failed."""

    number: int
    run: Path
    values: dict[str, Any]
    state: str
    score: float | None


def search(
    recipe: Recipe,
    space: Space,
    out: str | Path,
    *,
    trials: int,
    seed: int = 0,
    prune: bool = True,
    reporter: Reporter | None = None,
    told: Callable[[TrialResult], object] = lambda result: None,
    **options: Any,
) -> bool:
    """Runs trials until there are `trials` of them; `told` hears of each that has ended here. After each the page and
    the best recipe are written. Returns whether the search came to its end; Ctrl-C saves the trial and ends it before.

    `options` are those of `train_run`. Raises RunError for a folder that holds another search.
    """
    check_optuna()
    refuse_hub(out)
    folder, reporter = Path(out), reporter or Reporter()
    begin(folder, {"recipe": recipe.values(), "space": {key: part.as_json() for key, part in space.items()},
                   "seed": seed, "prune": prune})  # fmt: skip
    study, ended = Study(folder, space, seed=seed, prune=prune), True
    while ended:
        with study.next(trials) as found:
            if found is None:
                break
            trial, values = found
            run = folder / "trials" / f"{trial.number:04}"
            known = dict(study.study.get_trials(deepcopy=True)[trial.number].intermediate_values)
            state, score = run_trial(trial, known, recipe, values, run, reporter, **options)
            ended = state != "interrupted"
            if ended:
                _tell(study, trial, state, score)
                with study.lock:
                    write_page(folder, study.study, space, recipe, reporter)
            told(TrialResult(trial.number, run, values, state, score))
    return ended


def _tell(study: Study, trial: Any, state: str, score: float | None) -> None:
    states = study.optuna.trial.TrialState
    if state == "complete":
        study.study.tell(trial, score)
        return
    if state != "pruned":
        trial.set_user_attr("failed", state)
    study.study.tell(trial, state=states.PRUNED if state == "pruned" else states.FAIL)


def begin(folder: Path, plan: dict[str, Any]) -> None:
    """Makes the folder of a search, or resumes it. Raises RunError for a folder with another search or other files."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is a file; --out names a directory")
    path = folder / PLAN
    if folder.is_dir() and not path.exists():
        others = sorted(entry.name for entry in folder.iterdir() if entry.name not in (".lock", partial_of(path).name))
        if others:
            raise RunError(f"{folder}: not empty and no search (it holds {others[0]}); choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not path.exists():
                write_text(path, json.dumps(plan, indent=2) + "\n")
                return
            there = parse_json(path.read_bytes())
    except ParseError as error:
        raise RunError(f"{path}: damaged: {error}") from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be written ({error.strerror or error})") from None
    _check_same(folder, there, json.loads(json.dumps(plan)))


def _check_same(folder: Path, there: Any, here: dict[str, Any]) -> None:
    if not isinstance(there, dict):
        raise RunError(f"{folder / PLAN}: damaged: no table")
    theirs, ours = _flat(there), _flat(here)
    for key in {**ours, **theirs}:
        if theirs.get(key) != ours.get(key):
            found, asked = (json.dumps(plan.get(key), ensure_ascii=False)[:200] for plan in (theirs, ours))
            raise RunError(
                f"{folder}: holds another search ({key} is {found} there, asked for {asked}); choose another --out"
            )


def _flat(plan: dict[str, Any]) -> dict[str, Any]:
    """The values of a plan, those of its recipe and its space one by one."""
    flat: dict[str, Any] = {}
    for name, value in plan.items():
        flat |= {f"{name}: {key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return flat


class SearchReporter(Reporter):
    """Prints the notes of the runs, each once."""

    def __init__(self) -> None:
        self.printed: set[str] = set()

    def noted(self, note: str) -> None:
        if note not in self.printed:
            self.printed.add(note)
            print(f"note: {note}", file=sys.stderr)


def trial_line(result: TrialResult) -> str:
    """Return a trial as one line."""
    values = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in
                      result.values.items())  # fmt: skip
    score = "" if result.score is None else f" {result.score:.4f}"
    return f"trial {result.number}: {result.state}{score}  {values}"
