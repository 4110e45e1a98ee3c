"""The description of a task: its recipe, its files in a run, its commands, and its classes, imported when needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # they need torch, which lists of recipes do not
    from ensue.recipe.tables import Recipe
    from ensue.tasks.job import Job
    from ensue.tasks.model import ModelParts
    from ensue.tasks.pipeline import Pipeline


@dataclass(frozen=True)
class TaskEntry:
    """All that the rest of the package asks of a task. `parts`, `job` and `pipeline` are written "module:Class"."""

    recipe: type[Recipe]
    parts: str
    """The `ModelParts`: what is made from the data before a model can be built."""
    job: str
    """The `Job`: from data to a trained model."""
    pipeline: str
    """The `Pipeline`: a trained model at work."""
    commands: Mapping[str, frozenset[str]]
    """The commands of `ensue` that take a run, and for each the options that not all tasks have. The first one is
    suggested when training has ended."""
    judged_by: tuple[str, ...]
    """The scores that choose the best weights, by their names in `Scores.as_json`; which of them, the data decide."""
    files: tuple[str, ...] = field(default=("tokenizer.json",))
    """Files that a run of this task has beside those of every run."""

    @property
    def what(self) -> str:
        """What a model of this task is called: a "tagger"."""
        return self.recipe.what

    @property
    def parts_class(self) -> type[ModelParts]:
        return _imported(self.parts)  # type: ignore[no-any-return]

    @property
    def job_class(self) -> type[Job[Any]]:
        return _imported(self.job)  # type: ignore[no-any-return]

    @property
    def pipeline_class(self) -> type[Pipeline]:
        return _imported(self.pipeline)  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
