"""The base of the jobs that train taggers and classifiers: what they say of words, labels and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.job import Job
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.label_table import label_table
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.pretrained import d_vectors, pretrained_vectors
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.tuned import Tuned

ModelT = TypeVar("ModelT", bound=nn.Module)
MOST_NAMES = 20
"""The most labels that the card names."""


class LabeledData(Protocol):
    """Labeled texts in memory."""

    @property
    def forms(self) -> set[str]:
        """The distinct words."""

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""

    def __len__(self) -> int: ...


DataT = TypeVar("DataT", bound=LabeledData)


class WordsJob(Job[ModelT], Generic[ModelT, DataT]):
    """Trains a model on labeled texts. `unit` is what has a label."""

    counted_by: ClassVar[str]
    """The score that is the number of units."""
    recipe: WordsRecipe
    parts: WordParts
    train: DataT
    valid: DataT | None
    test_data: DataT | None
    contextual: ContextualFeatures
    tuned: Tuned | None

    @abstractmethod
    def read(self, location: str) -> DataT:
        """Validation or test data, in the format of the training data."""

    @abstractmethod
    def parted(self, whole: DataT, size: int) -> tuple[DataT, DataT, str]:
        """The training data in two parts: `size` of them, and the others for validation; and how they were chosen."""

    @property
    @abstractmethod
    def score_columns(self) -> dict[str, str]:
        """The scores on the card with their titles. All are shares."""

    @property
    def example(self) -> str:
        """A text that the model reads from stdin; "" if a plain text is not enough for it."""
        return ""

    def split(self, whole: DataT) -> tuple[DataT, DataT | None, str]:
        """The training and the validation data, and where the latter come from, for people."""
        data = self.recipe.data
        if data.valid:
            return whole, self.read(data.valid), data.valid
        size = max(1, round(len(whole) * (1 - data.valid_fraction)))
        return self.parted(whole, size) if size < len(whole) else (whole, None, "none")

    def pretrained(self) -> tuple[Sequence[str] | None, Tensor | None]:
        """The words of all data that have a pretrained vector, and these vectors; None twice without pretrained ones.

        Raises DataError if the file has no word of the data.
        """
        path, data = self.recipe.features.vectors, (self.train, self.valid, self.test_data)
        if not path:
            return None, None
        return pretrained_vectors(path, {form for part in data if part is not None for form in part.forms})

    def notes_on_labels(self) -> Iterator[str]:
        """Remarks on a validation that is missing, and on labels that only later data have."""
        if self.valid is None:
            yield "no validation data: the last weights are kept, and no score is measured"
        for what, part in (("validation", self.valid), ("test", self.test_data)):
            counts: Counter[str] = part.label_counts if part is not None else Counter()
            missing = sorted(counts.keys() - set(self.parts.labels.names))
            if missing:
                count = sum(counts[label] for label in missing)
                yield f"training has no {', '.join(missing)}: wrong {count:,} times in the {what} data"

    def begin_from(self, run: RunDirectory | None) -> None:
        """Finds the runs from which it begins, and their layers, which are features."""
        self.origins = origins_for(self.recipe.origins, run)
        self.contextual = ContextualFeatures.of(self.recipe.features, self.origins, torch.device("cpu"))
        self.tuned = Tuned.of(self.recipe.encoder, self.origins)

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        self.contextual.work_out(device, told)

    def build_model(self) -> ModelT:
        model = super().build_model()
        if self.tuned is not None:
            layers = cast("SubwordEncoder", model.get_submodule("layers"))
            self.inherited = {f"layers.{name}": rows for name, rows in self.tuned.inherit(layers).items()}
        return model

    def config(self) -> dict[str, Any]:
        return {"d_vectors": d_vectors(self.parts.pretrained), "contextual": self.contextual.shapes}

    def about(self) -> str:
        names = self.parts.labels.names
        shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
        return f"of {len(names)} labels ({shown})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        columns = self.score_columns
        lines = [f"| data | {' | '.join(columns.values())} | {self.unit} |", f"|---{'|---' * len(columns)}|---|"]
        for name, found in scores.items():
            numbers = " | ".join(f"{100 * found[key]:.2f}" for key in columns)
            lines.append(f"| {name} | {numbers} | {found[self.counted_by]:,} |")
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]

    def commands(self, path: str) -> list[str]:
        plain = [f'echo "{self.example}" | ensue predict {path}'] if self.example else []
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]
