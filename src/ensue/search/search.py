"""A search from its first trial to its page. A folder that holds one is gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ensue.errors import RunError
from ensue.parsing import ParseError, parse_json
from ensue.recipe import Recipe
from ensue.runs.hub import refuse_hub
from ensue.runs.reporter import Reporter
from ensue.runs.weights import partial_of, write_text
from ensue.search.page import write_page
from ensue.search.space import Space
from ensue.search.study import Study, check_optuna, run_trial

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
    """Makes the folder of a search, or checks that it holds this one. Raises RunError for another, and for a folder
    that holds other things.
    """
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
