"""The parts from which a model is built with its recipe: vocabularies and counts, made from data and kept in a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import nn

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config
from ensue.tasks import task_entry


class ModelParts(ABC):
    """A `Job` makes the parts from data; later they are read from the run directory. Both build the
    model by `build`.
    """

    config: ClassVar[type[Config]] = Config
    """The schema of the run's config.json."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """The parts of a run. Raises RunError for files that are missing or damaged. A task may have none."""
        return cls()

    def files(self) -> dict[str, Any]:
        """The contents of the files that `read` reads, as JSON values by name."""
        return {}

    def commands(self, recipe: Any, path: str) -> list[str]:
        """Commands that use a run of this recipe in the directory `path`, for its card."""
        return [f"ensue {command} {path} FILE" for command in task_entry(recipe.task).commands]

    def python(self, recipe: Any) -> list[str]:
        """Lines of Python that use `model`, a run of this recipe, for its card."""
        return ['print(model.evaluate("FILE").summary())']

    @abstractmethod
    def build(self, recipe: Any) -> nn.Module:
        """The model of a recipe, with weights drawn from torch's global generator. Raises ValueError for sizes that do
        not fit.
        """
