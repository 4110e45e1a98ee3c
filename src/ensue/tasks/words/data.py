"""The data set of a tagger or classifier of words: pretrained vectors, the lexicon, and the layers of other runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from ensue.models.build_text import build_lexicon
from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.contract.data_set import DataSet
from ensue.tasks.contract.labels_job import LabeledData
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.pretrained import pretrained_vectors
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.tuned import Tuned
from ensue.text.lexicon import Lexicon


class Forms(LabeledData, Protocol):
    """Labeled texts in memory."""

    @property
    def forms(self) -> set[str]:
        """The distinct words."""


DataT = TypeVar("DataT", bound=Forms)


class WordsData(DataSet[DataT], Generic[DataT]):
    """Labeled texts, with the runs from which their model begins, and whose layers are features."""

    def __init__(self, recipe: WordsRecipe, run: RunDirectory | None) -> None:
        self.origins = origins_for(recipe.origins, run)
        self.contextual = ContextualFeatures.of(recipe.features, self.origins, torch.device("cpu"))
        self.tuned = Tuned.of(recipe.encoder, self.origins)

    def lexicon(self, recipe: WordsRecipe, counts: Mapping[str, int], **columns: Any) -> tuple[Lexicon, Tensor | None]:
        """The lexicon of the training data, with the pretrained vectors of the words of all data, and of the most
        frequent other words; None without a file.

        Raises DataError if the file has no word of the data.
        """
        features, split = recipe.features, self.split
        if not features.vectors:
            return build_lexicon(features, counts, **columns), None
        forms = {form for part in (split.train, split.valid, split.test) if part is not None for form in part.forms}
        found = pretrained_vectors(features.vectors, forms, features.kept_vectors)
        lexicon = build_lexicon(features, counts, vectors=found.words, kept_vectors=found.kept, **columns)
        return lexicon, found.vectors

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        self.contextual.work_out(device, told)

    def inherit(self, model: nn.Module) -> Mapping[str, Tensor | None]:
        if self.tuned is None:
            return {}
        layers = cast("SubwordEncoder", model.get_submodule("layers"))
        return {f"layers.{name}": rows for name, rows in self.tuned.inherit(layers).items()}
