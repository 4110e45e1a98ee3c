"""The description of a task: its recipe, its files in a run, its commands, and its classes, imported when needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they need torch, which lists of recipes do not
    from ensue.recipe.tables import Recipe
    from ensue.tasks.contract.job import Job
    from ensue.tasks.contract.model import ModelParts
    from ensue.tasks.contract.pipeline import Pipeline


CONTEXTUAL = frozenset({"senses", "word-in-context", "threshold-from"})
"""The options of `evaluate` for models that have vectors of words in their sentences."""


@dataclass(frozen=True)
class TaskEntry:
    """The entry of a task, for the rest of the package. `parts`, `job` and `pipeline` are written "module:Class"."""

    recipe: type[Recipe]
    parts: str
    """The `ModelParts`: vocabularies and the like, from which a model is built."""
    job: str
    """The `Job`: from data to a trained model."""
    pipeline: str
    """The `Pipeline`: a trained model at work."""
    commands: Mapping[str, frozenset[str]]
    """The commands of `ensue` that take a run of this task, and for each the options that not all tasks have. The first
    command is suggested at the end of training.
    """
    judged_by: tuple[str, ...]
    """The scores that may choose the best weights, by their names in `Scores.as_json`. The data decide which one does.
    """
    files: tuple[str, ...] = field(default=("tokenizer.json",))
    """The files that a run of this task has, in addition to those of every run."""

    @property
    def what(self) -> str:
        """The name of a model of this task, such as "tagger"."""
        return self.recipe.what

    @property
    def parts_class(self) -> type[ModelParts]:
        """The class that `parts` names."""
        return _imported(self.parts)  # type: ignore[no-any-return]

    @property
    def job_class(self) -> type[Job[Any]]:
        """The class that `job` names."""
        return _imported(self.job)  # type: ignore[no-any-return]

    @property
    def pipeline_class(self) -> type[Pipeline]:
        """The class that `pipeline` names."""
        return _imported(self.pipeline)  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
