"""The parts from which a model is built with its recipe, kept in a run, and the weights that another run gives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ensue.errors import RecipeError
from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin
from ensue.runs.schema import Config
from ensue.tasks import task_entry

FREE = ("from", "dropout", "zoneout", "min_count", "max_size", "label_smoothing", "bigram_weight", "class_weights")
"""Keys of a recipe that may differ from those of the run from which it begins, by what their names begin with."""


class ModelParts(ABC):
    """Vocabularies and counts. A `Job` makes them from data, a run directory has them later; both build the model."""

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
        """The model, with weights drawn from torch's global generator. Raises ValueError for sizes that do not fit."""


def check_same_shape(recipe: Recipe, origin: Origin, tables: Sequence[str]) -> None:
    """Raises RecipeError unless the origin has a model of the same shape, and is a run of the same task, or of one from
    whose recipe this one derives. `tables` are those of a recipe that decide on the shape.
    """
    theirs, ours = origin.run.recipe.model_dump(), recipe.model_dump()
    if not isinstance(recipe, type(origin.run.recipe)):
        what = origin.run.entry.what
        raise RecipeError(f"encoder.from: {origin.path} is a {what}; a {recipe.what} begins from a {recipe.what}")
    free = FREE if ours["encoder"].get("positions") == "learned" else (*FREE, "context")
    for table in tables:
        for key, value in ours.get(table, {}).items():
            expected = theirs[table].get(key)
            if value != expected and not key.startswith(free):
                raise RecipeError(
                    f"{table}.{key} is {value!r}; it is {expected!r} in {origin.path}, from which this run begins "
                    f"(encoder.from); a recipe that fits is {origin.path}/recipe.toml"
                )


def pairs_of(model: nn.Module, origin: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The parameters that both models have: those of the layers in their order, since dropout changes names, and all
    others by their names. A head for a further question, as of next sentences, may be on one side only.
    """
    ours, theirs = (list(part.get_submodule("layers").named_parameters()) for part in (model, origin))
    for (name, parameter), (_, source) in zip(ours, theirs, strict=True):
        yield f"layers.{name}", parameter, source
    others = {name: parameter for name, parameter in origin.named_parameters() if not name.startswith("layers.")}
    for name, parameter in model.named_parameters():
        if name in others:
            yield name, parameter, others[name]


def fill(parameter: Tensor, source: Tensor, taken: Tensor | None = None) -> Tensor | None:
    """Copies rows of a table into another one. `taken` (V,) has the row of `source` for each, -1 for a new one, which
    begins at the mean; without it, new rows stand behind all others. The result says which are not new; None for all.
    """
    if taken is None and parameter.shape == source.shape:
        parameter.copy_(source)
        return None
    if taken is None:
        taken = nn.functional.pad(torch.arange(len(source)), (0, len(parameter) - len(source)), value=-1)
    known = taken >= 0
    parameter.copy_(source.mean(0, keepdim=True).expand_as(parameter))
    parameter[known] = source[taken[known]]
    return None if known.all() else known
