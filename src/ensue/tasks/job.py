"""What a run knows of its task: the data, read and checked; what is learned from them; what is kept beside the weights.

The order in which a run goes is the same for all of them (`run.py`).
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from ensue.recipe import Recipe
from ensue.runs.card import TaskLines, scores_by_data
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Outcome
from ensue.tasks import task_entry
from ensue.tasks.model import ModelParts
from ensue.tasks.task import Scores, Task

ModelT = TypeVar("ModelT", bound=nn.Module)


class Job(ABC, Generic[ModelT]):
    """Made from a recipe, and from the run directory if a run is taken up again; DataError for data of no use."""

    unit: ClassVar[str]
    """What is predicted: tokens, words or texts."""
    recipe: Recipe
    parts: ModelParts
    """What the model is built from: made from the data, or those of the run that is taken up again."""
    task: Task[ModelT, Any]
    fingerprint: str
    """Tells whether the training data are still what they were."""

    @abstractmethod
    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None: ...

    @property
    @abstractmethod
    def data(self) -> str:
        """How much there is, in one line."""

    @property
    def notes(self) -> list[str]:
        """What a person should know before the first step."""
        return []

    def protocol(self, model: ModelT) -> str:
        """How validation reads its data; "" where there is nothing to say."""
        return ""

    def build_model(self) -> ModelT:
        """The model before the first step, its weights drawn from torch's global generator."""
        model: Any = self.parts.build(self.recipe)
        self.prepare(model)
        return model  # type: ignore[no-any-return]

    def prepare(self, model: ModelT) -> None:
        """Set what is counted in the data and not drawn, such as the biases of rare labels."""

    def config(self) -> dict[str, Any]:
        """What else `config.json` has to say."""
        return {}

    def test(self, model: ModelT) -> Scores | None:
        """The scores on the test data; None where there are none."""
        return None

    def finish(self, run: RunDirectory, model: ModelT) -> None:
        """Write what belongs to a finished run, from its best weights."""

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """What draws the pictures of a finished run, but for the curve, by the names of their files."""
        return {}

    def card_lines(self, run: RunDirectory, outcome: Outcome) -> TaskLines:
        """What the task has to say on the card."""
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
        rows = [f"| {data} | {found[name]:.4f} |" for data, found in scores.items()]
        return [f"| data | {name.replace('_', ' ')} |", "|---|---|", *rows]

    def data_lines(self) -> list[str]:
        """What the model was trained, chosen and tested on, as a list in Markdown."""
        paths = {
            "training": self.recipe.data.train,
            "validation": self.recipe.data.valid,
            "test": self.recipe.data.test,
        }
        return [f"- {name}: `{path}`" for name, path in paths.items() if path]

    def commands(self, path: str) -> list[str]:
        """What can be done with the run on the command line."""
        return [f"ensue {command} {path} FILE" for command in task_entry(self.recipe.task).commands]

    def python(self) -> list[str]:
        """What can be done with `model` in Python."""
        return ['print(model.evaluate("FILE").summary())']
