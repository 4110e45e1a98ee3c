"""A trial of a search: an ordinary run, which ends early if others were better at the same validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.errors import EnsueError, RecipeError, TrainingError
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
