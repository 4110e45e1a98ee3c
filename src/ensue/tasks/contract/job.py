"""The job of a task in a run: it reads data, makes model and task, writes its files. `run.py` has the order."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin
from ensue.runs.reporter import Outcome, TaskLines, score_table, scores_by_data
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.contract.task import Scores, Task

ModelT = TypeVar("ModelT", bound=nn.Module)


class Job(ABC, Generic[ModelT]):
    """The job of a recipe, or of a run that is resumed. Raises DataError for data that cannot be used."""

    unit: ClassVar[str]
    """The unit of a prediction: tokens, words or texts."""
    recipe: Recipe
    parts: ModelParts
    """The parts of the model: made from the data, or read from the run that is resumed."""
    task: Task[ModelT, Any]
    origins: Sequence[Origin] = ()
    """The runs from which it begins (`origins_for`)."""
    fingerprint: str
    """The fingerprint of the training data, which shows whether they have changed."""
    inherited: Mapping[str, Tensor | None] = MappingProxyType({})
    """The parameters of the model that come from another run, by name, once it is built; if some rows of a table are
    new, True at those (V,) that are not.
    """

    @abstractmethod
    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None: ...

    @property
    @abstractmethod
    def data(self) -> str:
        """The amount of data, in one line."""

    @property
    def notes(self) -> list[str]:
        """Remarks on the data before the first step."""
        return []

    def labels_in_names(self, location: str) -> list[str]:
        """The labels that files of a location have from their names or folders, since their bytes do not show them."""
        return []

    def protocol(self, model: ModelT) -> str:
        """How validation reads its data, in one line; "" if there is nothing to say."""
        return ""

    def build_model(self) -> ModelT:
        """The model before the first step, with weights drawn from torch's global generator."""
        model: Any = self.parts.build(self.recipe)
        self.prepare(model)
        return model  # type: ignore[no-any-return]

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        """Works out before the first step, on the device of the run, what other models say of the data. `told` hears
        what it is, and which share of it is done.
        """

    def prepare(self, model: ModelT) -> None:
        """Sets the parameters that are counted in the data and not drawn, such as the biases of labels."""

    def config(self) -> dict[str, Any]:
        """The keys that the task adds to `config.json`."""
        return {}

    def test(self, model: ModelT) -> Scores | None:
        """The scores on the test data; None if there are none."""
        return None

    def finish(self, run: RunDirectory, model: ModelT) -> None:
        """Writes the task's files of a finished run, from its best weights."""

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """Functions that draw the task's pictures of a finished run, by the names of their files."""
        return {}

    def card_lines(self, run: RunDirectory, outcome: Outcome) -> TaskLines:
        """The task's parts of the model card."""
        path = shlex.quote(str(run.path))
        return TaskLines(
            self.about(),
            self.score_lines(scores_by_data(outcome)),
            self.data_lines(),
            self.commands(path),
            self.python(),
        )

    def about(self) -> str:
        """The end of the sentence "a tagger ..." on the card."""
        return f"of {self.unit}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        """The scores by data ("validation", "test") as a table in Markdown."""
        name = self.task.judged_by
        return score_table(scores, {name: (name.replace("_", " "), ".4f")})

    def data_lines(self) -> list[str]:
        """The training, validation and test data, as a list in Markdown."""
        paths = {
            "training": self.recipe.data.train,
            "validation": self.recipe.data.valid,
            "test": self.recipe.data.test,
        }
        return [f"- {name}: `{path}`" for name, path in paths.items() if path]

    def commands(self, path: str) -> list[str]:
        """Commands that use the run."""
        return self.parts.commands(self.recipe, path)

    def python(self) -> list[str]:
        """Lines of Python that use `model`."""
        return self.parts.python(self.recipe)
