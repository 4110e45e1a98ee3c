"""The base of the jobs that train taggers and classifiers of words: their features, and the layers of other runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import nn

from ensue.models.build_text import build_lexicon
from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.labels_job import LabeledData, LabelsJob
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.pretrained import Pretrained, d_vectors, pretrained_vectors
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.tuned import Tuned
from ensue.text.lexicon import Lexicon

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

    def pretrained(self) -> Pretrained | None:
        """The pretrained vectors of the words of all data, and of the most frequent other words; None without a file.

        Raises DataError if the file has no word of the data.
        """
        features, data = self.recipe.features, (self.train, self.valid, self.test_data)
        if not features.vectors:
            return None
        forms = {form for part in data if part is not None for form in part.forms}
        return pretrained_vectors(features.vectors, forms, features.kept_vectors)

    def lexicon_with(self, pretrained: Pretrained | None, counts: Mapping[str, int], **columns: Any) -> Lexicon:
        """The lexicon of the training data, in which so many words have pretrained vectors."""
        words, kept = (None, 0) if pretrained is None else (pretrained.words, pretrained.kept)
        return build_lexicon(self.recipe.features, counts, vectors=words, kept_vectors=kept, **columns)

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
