"""What a model is built from, beside its recipe: vocabularies and counts that are made from data and kept in a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import nn

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config


class ModelParts(ABC):
    """Made by a `Job` from data, and read from the run directory at use. Both build the model by the same `build`."""

    config: ClassVar[type[Config]] = Config
    """The schema of the run's config.json."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """Those of a run; RunError for files that are missing or damaged. A task may do without any."""
        return cls()

    def files(self) -> dict[str, Any]:
        """The content of the files that `read` reads, as JSON values by name."""
        return {}

    @abstractmethod
    def build(self, recipe: Any) -> nn.Module:
        """The model that the recipe describes, its weights drawn from torch's global generator.

        ValueError for sizes that do not go together.
        """
