"""Which job a recipe is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ensue.recipe import Recipe
from ensue.training.classification import ClassificationJob
from ensue.training.job import Job
from ensue.training.labeling import LabelingJob
from ensue.training.language_modeling import LanguageModelingJob
from ensue.training.run_directory import RunDirectory

JOBS: dict[str, Callable[[Any, RunDirectory | None], Job[Any]]] = {
    "language-modeling": LanguageModelingJob,
    "labeling": LabelingJob,
    "classification": ClassificationJob,
}


def begin_job(recipe: Recipe, run: RunDirectory | None) -> Job[Any]:
    """Read the data of a recipe; `run` is the directory of a run that is taken up again."""
    return JOBS[recipe.task](recipe, run)
