"""`ModelParts`, and `Job`: the steps of a run that depend on the task (read data, build the model, write files).

`training/run.py` calls the steps in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ensue.errors import RecipeError
from ensue.recipe import Recipe
from ensue.runs.directory import Origin, RunDirectory
from ensue.runs.reporter import score_table
from ensue.runs.schema import Config
from ensue.tasks import task_entry
from ensue.tasks.contract.task import Task, TaskScores

FREE_PREFIXES = (
    *("from", "dropout", "zoneout", "min_count", "max_size", "label_smoothing", "bigram_weight", "class_weights"),
)
"""Prefixes of the keys that may differ between a recipe and the run from which its run begins."""


class ModelParts(ABC):
    """The vocabularies and counts from which a model is built. A `Job` makes them, and a run directory stores them."""

    config: ClassVar[type[Config]] = Config
    """The schema of the run's `config.json`."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """Return the vocabularies and counts of a run. Raise RunError for files that are missing or damaged."""
        return cls()

    def files(self) -> dict[str, Any]:
        """Return the contents of the files of a run that `read` reads, as JSON values by the names of files."""
        return {}

    def commands(self, recipe: Any, path: str) -> list[str]:
        """Return commands that use the run of a recipe in the directory `path`, for the card."""
        return [f"ensue {command} {path} FILE" for command in task_entry(recipe.task).commands]

    def python(self, recipe: Any) -> list[str]:
        """Return lines of Python that use `model`, the trained model of a recipe, for the card."""
        return ['print(model.evaluate("FILE").summary())']

    @abstractmethod
    def build(self, recipe: Any) -> nn.Module:
        """Return the model, with weights from torch's global generator. Raise ValueError for impossible sizes."""


def check_same_shape(recipe: Recipe, origin: Origin, tables: Sequence[str]) -> None:
    """Raise RecipeError unless the model of the origin has the same shape, which depends on `tables` of the recipe. The
    task of the origin must be the same, or a task whose recipe class is a base of the class of `recipe`.
    """
    origin_tables, recipe_tables = origin.run.recipe.model_dump(), recipe.model_dump()
    encoder = recipe_tables["encoder"] or {}
    origin_key = "encoder.from" if encoder.get("from") else "decoder.from"
    if not isinstance(recipe, type(origin.run.recipe)):
        noun = origin.run.entry.what
        raise RecipeError(f"{origin_key}: {origin.path} is a {noun}; a {recipe.what} begins from a {recipe.what}")
    free_prefixes = FREE_PREFIXES if encoder.get("positions") == "learned" else (*FREE_PREFIXES, "context")
    for table in tables:
        expected = origin_tables.get(table) or {}
        for key, value in (recipe_tables.get(table) or {}).items():
            if value != expected.get(key) and not key.startswith(free_prefixes):
                raise RecipeError(
                    f"{table}.{key} is {value!r}; it is {expected.get(key)!r} in {origin.path}, from which this run "
                    f"begins ({origin_key}); a recipe that fits is {origin.run.path}/recipe.toml"
                )


def paired_parameters(model: nn.Module, origin: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield (name, parameter, source) for each parameter of a model and the same parameter of its origin. Parameters of
    the layers are paired by their order, since dropout changes their names, and other parameters by their names.
    Outside of the layers, a parameter that only one of the models has is skipped.
    """
    layers = (module.get_submodule("layers").named_parameters() for module in (model, origin))
    for (name, parameter), (_, source) in zip(*layers, strict=True):
        yield f"layers.{name}", parameter, source
    sources = {name: source for name, source in origin.named_parameters() if not name.startswith("layers.")}
    for name, parameter in model.named_parameters():
        if name in sources:
            yield name, parameter, sources[name]


def copy_rows(parameter: Tensor, source: Tensor, rows: Tensor | None = None) -> Tensor | None:
    """Copy `source[rows]` into the V rows of `parameter`, and the mean of `source` where `rows` (V,) is -1.
    Without `rows`, row i is copied to row i. Return a mask (V,) of the copied rows; None if all are copied.
    """
    if rows is None and parameter.shape == source.shape:
        parameter.copy_(source)
        return None
    if rows is None:
        rows = nn.functional.pad(torch.arange(len(source)), (0, len(parameter) - len(source)), value=-1)
    is_inherited = rows >= 0
    parameter.copy_(source.mean(0, keepdim=True).expand_as(parameter))
    parameter[is_inherited] = source[rows[is_inherited]]
    return None if is_inherited.all() else is_inherited


ModelT = TypeVar("ModelT", bound=nn.Module)
HeldOut = Literal["valid", "test"]


class Job(ABC, Generic[ModelT]):
    """The steps of a new or resumed run that depend on its task. The constructor raises DataError for unusable data."""

    unit: ClassVar[str]
    """The unit of a prediction: tokens, words or texts."""
    examples: ClassVar[str] = "examples"
    """The plural noun for the units of held-out data."""
    sample_size: ClassVar[int] = 4
    """The number of held-out examples with which the time of scoring is first measured."""
    finishing_validations: ClassVar[int] = 0
    """The number of times that `finish` scores the validation data."""
    split: Any = None
    """Training, validation and test data; None for a task with other data."""
    data_set: Any = None
    """The `DataSet` of examples; None for a task with other data."""
    data_name: ClassVar[str] = "split"
    """The name of the attribute with the held-out data."""
    recipe: Recipe
    parts: ModelParts
    """The vocabularies and counts of the model, computed from the data, or read from the run that is resumed."""
    task: Task[ModelT, Any]
    origins: Sequence[Origin] = ()
    """The runs whose weights or layers the model takes (`origins_for`)."""
    fingerprint: str
    """The fingerprint of the training data, which must be equal when a run is resumed."""
    inherited: Mapping[str, Tensor | None] = MappingProxyType({})
    """The parameters that come from another run: for each name, None or a mask (V,) of the rows that are inherited."""
    contextual: Any = None
    """The `ContextualFeatures` of the data, which are computed before the first step; None without such features."""

    @abstractmethod
    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None: ...

    @property
    @abstractmethod
    def data(self) -> str:
        """The amount of data in one line."""

    @property
    def notes(self) -> list[str]:
        """Remarks on the data before the first step."""
        return []

    def protocol(self, model: ModelT) -> str:
        """Return a description of how validation reads its data, in one line; "" without a remark."""
        return ""

    def build_model(self) -> ModelT:
        """Return the model before the first step, with weights from torch's global random generator."""
        model: Any = self.parts.build(self.recipe)
        self.prepare(model)
        return model

    def prepare(self, model: ModelT) -> None:
        """Initialize the parameters that are computed from the data, such as the biases of labels."""

    def config(self) -> dict[str, Any]:
        """Return the keys that the task adds to `config.json`."""
        return {}

    def test(self, model: ModelT) -> TaskScores | None:
        """Return the scores on the test data; None without test data."""
        data = self.held_out("test")
        return None if data is None else self.task.score(model, self.encode(data))

    def encode(self, data: Any) -> Any:
        """Return held-out data as the argument of `Task.score`."""
        return data

    def held_out(self, name: HeldOut) -> Any:
        """Return the validation or test data, the argument of `draw`; None without such data."""
        return getattr(getattr(self, self.data_name), name, None)

    def draw(self, data: Any, count: int) -> Any:
        """Return `count` examples of held-out data, drawn by the seed. A larger sample contains each smaller one."""
        rows = np.random.default_rng(self.recipe.train.seed).permutation(len(data))[:count]
        return data.select(np.sort(rows))

    def use_part(self, name: HeldOut, data: Any) -> None:
        """Score `data`, all or some of the held-out data, in later validations or tests."""
        if name == "valid":
            self.validate_on(data)
        else:
            getattr(self, self.data_name).test = data

    def validate_on(self, data: Any) -> None:
        """Make `data` the data of later validations."""
        self.task.valid = self.encode(data)

    def finish(self, run: RunDirectory, model: ModelT) -> None:
        """Write the files of a finished run that depend on the task, from the best weights `model`."""

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """Return functions that draw the pictures of a finished run, by the names of their files."""
        return {}

    def about(self) -> str:
        """Return the end of the phrase "a tagger ..." on the card."""
        return f"of {self.unit}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        """Return a table in Markdown of the scores by data ("validation", "test")."""
        name = self.task.judged_by
        return score_table(scores, {name: (name.replace("_", " "), ".4f")})

    def data_lines(self) -> list[str]:
        """Return the training, validation and test data, as a list in Markdown."""
        data = self.recipe.data
        paths = {"training": data.train, "validation": data.valid, "test": data.test}
        return [f"- {name}: `{path}`" for name, path in paths.items() if path]
