"""The layers of other runs as features of words: of a data set from the cache, of other texts when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.errors import RecipeError
from ensue.models.contextual_vectors import LayersShape
from ensue.models.feature_specification import FeatureSpecification
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin, origins_in
from ensue.tasks import TASKS, task_entry
from ensue.tasks.contextual import ContextualPipeline
from ensue.tasks.words.kept_vectors import Halves, KeptVectors, LayersOfTexts, kept_vectors

LARGEST = 65504.0
"""The largest float16."""


@dataclass(frozen=True)
class OriginVectors:
    """What is taken from a run: its `layers`, and the pooling of subwords. `path` is how the recipe names it."""

    pipeline: ContextualPipeline
    path: str
    fingerprint: str
    layers: tuple[int, ...]
    pooling: str

    @property
    def shape(self) -> LayersShape:
        """How many layers are taken, and the size of a vector."""
        return LayersShape(len(self.layers), self.pipeline.d_layers)

    def of(self, texts: Sequence[Sequence[str]]) -> list[Halves]:
        """The vectors (T, L, d) of the words of each text."""
        found = self.pipeline.layers_of_words(texts, pooling=self.pooling)
        return [rounded(layers[list(self.layers)].transpose(1, 0, 2)) for layers in found]

    def kept(self, words: Ragged, forms: Sequence[str]) -> KeptVectors:
        """The vectors of texts as numbers of word forms, from the cache if it has them.

        Raises DataError if they are more than the cache may hold, or cannot be written.
        """
        return kept_vectors(words, forms, self.of, shape=self.shape, key=[self.fingerprint, self.layers, self.pooling])


class ContextualFeatures(tuple[OriginVectors, ...]):
    """The runs whose layers are features, in the order of the recipe."""

    __slots__ = ()

    @classmethod
    def of(cls, features: FeatureSpecification, origins: Sequence[Origin], device: torch.device) -> Self:
        """Those of a recipe. Raises RecipeError for a run that has no such vectors, or a layer that it has not."""
        by_path = {origin.path: origin for origin in origins}
        return cls(_origin_vectors(by_path[path], features, device) for path in features.contextual)

    @classmethod
    def within(cls, run: RunDirectory, device: torch.device) -> Self:
        """Those inside of a run of a model that reads words."""
        recipe: Any = run.recipe
        return cls.of(recipe.features, origins_in(run), device)

    @property
    def shapes(self) -> tuple[LayersShape, ...]:
        """What each gives."""
        return tuple(origin.shape for origin in self)

    def kept(self, words: Ragged, forms: Sequence[str]) -> tuple[LayersOfTexts, ...]:
        """The vectors of texts as numbers of word forms, from the cache."""
        return tuple(origin.kept(words, forms) for origin in self)

    def computed(self, texts: Sequence[Sequence[str]]) -> tuple[LayersOfTexts, ...]:
        """The vectors of texts, worked out when they are asked for."""
        return tuple(ComputedVectors(origin, texts) for origin in self)


NO_CONTEXT = ContextualFeatures()


@dataclass(frozen=True)
class ComputedVectors(LayersOfTexts):
    """Vectors that are worked out when they are asked for."""

    origin: OriginVectors
    texts: Sequence[Sequence[str]]

    def rows(self, texts: NDArray[np.int64]) -> Halves:
        some = [self.texts[text] for text in texts.tolist()]
        found = np.zeros((len(some), max(map(len, some), default=0), *self.origin.shape), np.float16)
        for row, vectors in zip(found, self.origin.of(some), strict=True):
            row[: len(vectors)] = vectors
        return found


def rounded(vectors: NDArray[np.float32]) -> Halves:
    """The vectors as float16; what is too large becomes the largest one."""
    return vectors.clip(-LARGEST, LARGEST).astype(np.float16)


def _origin_vectors(origin: Origin, features: FeatureSpecification, device: torch.device) -> OriginVectors:
    entry = origin.run.entry
    if not issubclass(entry.pipeline_class, ContextualPipeline):
        known = [task_entry(name) for name in TASKS]
        able = [found.what for found in known if issubclass(found.pipeline_class, ContextualPipeline)]
        raise RecipeError(
            f"features.contextual: {origin.path} is a run of a {entry.what}, which gives no vectors of words in their "
            f"sentences; expected a {' or a '.join(able)}"
        )
    pipeline = entry.pipeline_class.of(origin.run, device)
    layers, count = features.contextual_layers or range(pipeline.num_layers), pipeline.num_layers
    if wrong := [layer for layer in layers if not -count <= layer < count]:
        raise RecipeError(
            f"features.contextual_layers: {origin.path} has the layers 0 to {count - 1}; found {wrong[0]}"
        )
    return OriginVectors(
        pipeline, origin.path, origin.fingerprint, tuple(layer % count for layer in layers), features.contextual_pooling
    )
