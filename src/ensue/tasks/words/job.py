"""The base of the jobs that train taggers and classifiers of words: their features, and the layers of other runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.labels_job import LabeledData, LabelsJob
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.pretrained import d_vectors, pretrained_vectors
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.tuned import Tuned

ModelT = TypeVar("ModelT", bound=nn.Module)


class Forms(LabeledData, Protocol):
    """Labeled texts in memory."""

    @property
    def forms(self) -> set[str]:
        """The distinct words."""


DataT = TypeVar("DataT", bound=Forms)


class WordsJob(LabelsJob[ModelT, DataT]):
    """Trains a model on labeled texts."""

    recipe: WordsRecipe
    parts: WordParts
    contextual: ContextualFeatures
    tuned: Tuned | None

    def pretrained(self) -> tuple[Sequence[str] | None, Tensor | None]:
        """The words of all data that have a pretrained vector, and these vectors; None twice without pretrained ones.

        Raises DataError if the file has no word of the data.
        """
        path, data = self.recipe.features.vectors, (self.train, self.valid, self.test_data)
        if not path:
            return None, None
        return pretrained_vectors(path, {form for part in data if part is not None for form in part.forms})

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
