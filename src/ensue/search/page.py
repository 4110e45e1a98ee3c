"""The results of a search: `best.toml`, the page README.md, and a picture of the importance of keys."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

from ensue.recipe import Recipe, read_recipe
from ensue.runs.pictures import made, picture
from ensue.runs.reporter import Reporter
from ensue.runs.weights import write_text
from ensue.search.space import Choice, Range, Space

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
