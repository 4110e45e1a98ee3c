"""What a run knows of its task: the data, read and checked; what is learned from them; what is kept beside the weights.

The order in which a run goes is the same for all of them (`run.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torch import nn

from ensue.recipe import Recipe
from ensue.tasks.task import Scores, Task

if TYPE_CHECKING:
    from ensue.training.run_directory import RunDirectory

ModelT = TypeVar("ModelT", bound=nn.Module)


class Job(ABC, Generic[ModelT]):
    """Made from a recipe, and from the run directory if a run is taken up again; DataError for data of no use."""

    unit: ClassVar[str]
    """What is predicted: tokens, words or texts."""
    recipe: Recipe
    task: Task[ModelT, Any]
    fingerprint: str
    """Tells whether the training data are still what they were."""

    @property
    @abstractmethod
    def data(self) -> str:
        """How much there is, in one line."""

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """What a person should know before the first step."""

    def protocol(self, model: ModelT) -> str:
        """How validation reads its data; "" where there is nothing to say."""
        return ""

    @abstractmethod
    def build_model(self) -> ModelT:
        """The model before the first step, its weights drawn from torch's global generator."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """What else `config.json` has to say."""

    @abstractmethod
    def vocabularies(self) -> dict[str, Any]:
        """What is read of text and what comes out, as JSON values by the names of their files."""

    @abstractmethod
    def test(self, model: ModelT) -> Scores | None:
        """The scores on the test data; None where there are none."""

    def finish(self, run: RunDirectory, model: ModelT) -> None:
        """Write what belongs to a finished run, from its best weights."""

    def draw(self, run: RunDirectory) -> None:
        """Pictures of a finished run, but for the curve."""

    @abstractmethod
    def about(self) -> str:
        """The end of the sentence "a tagger ..." on the card."""

    @abstractmethod
    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        """The scores by data ("validation", "test") as a table in Markdown."""

    @abstractmethod
    def data_lines(self) -> list[str]:
        """What the model was trained, chosen and tested on, as a list in Markdown."""

    @abstractmethod
    def commands(self, path: str) -> list[str]:
        """What can be done with the run on the command line."""

    @abstractmethod
    def python(self) -> list[str]:
        """What can be done with `model` in Python."""
