"""The study of a search: its journal, which any number of processes write to, which trial comes next, and a trial.

A trial is an ordinary run, which ends early if others were better at the same validation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ensue.errors import EnsueError, RecipeError, RunError, TrainingError
from ensue.extensions.experiments.search.space import Space
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import MetricsLog, Reporter, Validation
from ensue.training.run import train_run


class TrialReporter(Reporter):
    """Tells the study of each validation, and asks it whether to go on."""

    def __init__(self, trial: Any, known: dict[int, float], run: Path, reporter: Reporter) -> None:
        self.trial, self.reporter, self.log = trial, reporter, MetricsLog(run / "metrics.jsonl")
        self.known = known
        """The scores that the study knows, by the number of the validation."""
        self.pruned = bool(known) and trial.should_prune()

    def noted(self, note: str) -> None:
        self.reporter.noted(note)

    def validated(self, validation: Validation) -> None:
        number = sum(record["kind"] == "valid" for record in self.log.records())
        if number not in self.known:  # a run that goes on may come to a validation again
            self.known[number] = validation.selection
            self.trial.report(validation.selection, number)
        self.pruned = self.trial.should_prune()

    def is_enough(self) -> bool:
        return self.pruned


def run_trial(
    trial: Any, known: dict[int, float], recipe: Recipe, values: dict[str, Any], run: Path, reporter: Reporter,
    **options: Any,
) -> tuple[str, float | None]:  # fmt: skip
    """Trains the run of a trial, from where it was left. Returns "complete", "pruned", "interrupted" or what has
    failed, and the best score, of which the lowest is the best.

    Values that cannot be trained are a trial that has failed. Raises EnsueError for other mistakes.
    """
    told = TrialReporter(trial, known, run, reporter)
    try:
        chosen = read_recipe(recipe, values)
        outcome = train_run(chosen, run, resume=RunDirectory(run).exists, reporter=told, **options)
    except (TrainingError, RecipeError) as error:
        return str(error), None
    if outcome.reason == "interrupted":
        return "interrupted", None
    if not told.known:
        raise EnsueError("no validation data, by which trials could be compared; --valid names some")
    return ("pruned" if told.pruned and outcome.reason == "stopped early" else "complete"), min(told.known.values())


def check_optuna() -> None:
    """Raises EnsueError if Optuna is missing."""
    if find_spec("optuna") is None:
        raise EnsueError("search needs the package optuna: pip install 'ensue[search]'")


class Study:
    """The trials of a search in `folder`, in the order of their numbers.

    What a trial is depends on the seed, its number, and the trials that have ended before it began. So a search that
    was killed and goes on is the undisturbed one, as long as one process works on it. A trial that a killed process
    left is taken up before a new one begins.
    """

    def __init__(self, folder: Path, space: Space, *, seed: int, prune: bool) -> None:
        import optuna  # noqa: PLC0415 (an extra)
        from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna, self.folder, self.space, self.seed = optuna, folder, space, seed
        self.lock = FileLock(folder / ".lock")
        journal = folder / "journal.jsonl"
        lock: Any = FileLock(folder / ".journal.lock")  # unlike Optuna's lock it ends with its process
        with self.lock, lock:
            _drop_cut_line(journal)
        pruner = optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner()
        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
            with self.lock:
                self.study = optuna.create_study(
                    storage=storage, study_name="search", direction="minimize", pruner=pruner, load_if_exists=True
                )
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:  # whatever stands there
            raise RunError(f"{journal}: damaged: {error}") from None

    def trials(self) -> list[Any]:
        """All trials so far."""
        return self.study.get_trials(deepcopy=False)

    @contextmanager
    def next(self, most: int) -> Iterator[tuple[Any, dict[str, Any]] | None]:
        """The next trial with its values, for the duration of a `with` block; None if there are `most` already."""
        with self.lock:
            found = self._left() or self._asked(most)
            values = None if found is None else self._values(found[0])
        if found is None or values is None:
            yield None
            return
        try:
            yield found[0], values
        finally:
            found[1].release()

    def _left(self) -> tuple[Any, FileLock] | None:
        """A trial that was begun and that no process works on."""
        for trial in self.trials():
            if trial.state == self.optuna.trial.TrialState.RUNNING:
                claim = self._claim(trial.number)
                try:
                    claim.acquire(timeout=0)
                except Timeout:
                    continue
                self._sampler(trial.number)
                return self.optuna.trial.Trial(self.study, trial._trial_id), claim
        return None

    def _asked(self, most: int) -> tuple[Any, FileLock] | None:
        number = len(self.trials())
        if number >= most:
            return None
        claim = self._claim(number)
        claim.acquire(timeout=0)
        self._sampler(number)
        return self.study.ask(), claim

    def _values(self, trial: Any) -> dict[str, Any]:
        found = {}
        for place, (key, values) in enumerate(self.space.items()):
            self._sampler(trial.number, place + 1)  # a kill may have come between two values
            found[key] = values.drawn(trial, key)
        return found

    def _sampler(self, *key: int) -> None:
        seed = int(np.random.SeedSequence((self.seed, *key)).generate_state(1)[0])
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)

    def _claim(self, number: int) -> FileLock:
        """The lock of a trial; it ends with its process."""
        folder = self.folder / "locks"
        folder.mkdir(exist_ok=True)
        return FileLock(folder / f"{number:04}")


def _drop_cut_line(journal: Path) -> None:
    """Cuts off a last line without an end, which a kill has left."""
    if journal.exists():
        content = journal.read_bytes()
        if not content.endswith(b"\n"):
            os.truncate(journal, content.rfind(b"\n") + 1)
