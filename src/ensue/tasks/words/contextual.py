"""The layers of other runs as features of words: of a data set from the cache, of other texts when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.errors import RecipeError
from ensue.models.layer_outputs import LayersShape
from ensue.models.modules import device_of
from ensue.models.word_specification import ContextualSpecification
from ensue.notices import say_once
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin, origins_in
from ensue.tasks import task_entries
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.tasks.words.kept_vectors import Halves, LayersOfTexts, Told, WordsOfTexts, kept_vectors

LARGEST = 65504.0
"""The largest float16."""


class OriginVectors:
    """The vectors that are taken from a run: its `layers`, and the pooling of subwords."""

    def __init__(self, origin: Origin, pipeline: ContextualPipeline, layers: tuple[int, ...], pooling: str) -> None:
        self.origin, self.pipeline, self.layers, self.pooling = origin, pipeline, layers, pooling

    @property
    def path(self) -> str:
        """The run, as the recipe names it."""
        return self.origin.path

    @property
    def shape(self) -> LayersShape:
        """How many layers are taken, and the size of a vector."""
        return LayersShape(len(self.layers), self.pipeline.d_layers)

    def move(self, device: torch.device) -> None:
        """Works them out on this device from now on."""
        if device_of(self.pipeline.model) != device:
            self.pipeline = type(self.pipeline).of(self.origin.run, device)

    def of(self, texts: Sequence[Sequence[str]]) -> list[Halves]:
        """The vectors (T, L, d) of the words of each text."""
        found = self.pipeline.layers_of_words(texts, pooling=self.pooling)
        return [rounded(layers[list(self.layers)].transpose(1, 0, 2)) for layers in found]

    def kept(self, words: Ragged, forms: Sequence[str], told: Told) -> LayersOfTexts:
        """The vectors of texts as numbers of word forms, from the cache if it has them. If they are more than it may
        hold, they are worked out again whenever they are asked for, which is said.

        Raises DataError if they cannot be written.
        """
        device = device_of(self.pipeline.model).type  # they round differently
        key = [self.origin.fingerprint, self.layers, self.pooling, device]
        found = kept_vectors(
            words, forms, self.of, shape=self.shape, key=key, told=partial(told, f"layers of {self.path}")
        )
        if found is None:
            say_once(f"layers of {self.path}", _ADVICE.format(path=self.path, words=len(words.values)))
            return ComputedVectors(self, WordsOfTexts(words, forms))
        return found


_ADVICE = (
    "features.contextual: the layers of {path} at {words:,} words are more than the cache holds, and are worked out "
    "again in each epoch; fewer features.contextual_layers or a larger ENSUE_CACHE_LIMIT avoid it"
)


class ContextualFeatures:
    """The runs whose layers are features, in the order of the recipe."""

    def __init__(self, origins: Iterable[OriginVectors] = ()) -> None:
        self.origins = tuple(origins)
        self._awaited: list[AwaitedVectors] = []

    @classmethod
    def of(cls, features: ContextualSpecification, origins: Sequence[Origin], device: torch.device) -> Self:
        """The vectors that a recipe names. Raises RecipeError for a run that has none, or a layer that it has not."""
        by_path = {origin.path: origin for origin in origins}
        return cls(_origin_vectors(by_path[path], features, device) for path in features.contextual)

    @classmethod
    def within(cls, run: RunDirectory, device: torch.device) -> Self:
        """The vectors inside of a run of a model that reads words."""
        recipe: Any = run.recipe
        return cls.of(recipe.features, origins_in(run), device)

    @property
    def shapes(self) -> tuple[LayersShape, ...]:
        """The shape of each origin's layers."""
        return tuple(origin.shape for origin in self.origins)

    def awaited(self, words: Ragged, forms: Sequence[str]) -> tuple[LayersOfTexts, ...]:
        """The vectors of a data set, as numbers of word forms, which `work_out` works out."""
        found = tuple(AwaitedVectors(origin, words, forms) for origin in self.origins)
        self._awaited += found
        return found

    def work_out(self, device: torch.device, told: Told) -> None:
        """Works out on this device what is awaited and not in the cache."""
        for origin in self.origins:
            origin.move(device)
        for vectors in self._awaited:
            vectors.work_out(told)
        self._awaited = []

    def computed(self, texts: Sequence[Sequence[str]]) -> tuple[LayersOfTexts, ...]:
        """The vectors of texts, worked out when they are asked for."""
        return tuple(ComputedVectors(origin, texts) for origin in self.origins)


NO_CONTEXT = ContextualFeatures()


class AwaitedVectors(LayersOfTexts):
    """The vectors of a data set, worked out at first use if not before."""

    def __init__(self, origin: OriginVectors, words: Ragged, forms: Sequence[str]) -> None:
        self.origin, self.words, self.forms = origin, words, forms
        self._found: LayersOfTexts | None = None

    def work_out(self, told: Told) -> LayersOfTexts:
        """The vectors, of which `told` hears how many there are already."""
        if self._found is None:
            self._found = self.origin.kept(self.words, self.forms, told)
        return self._found

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Halves:
        return self.work_out(lambda what, share: None).rows(texts, among=among)


@dataclass(frozen=True)
class ComputedVectors(LayersOfTexts):
    """Vectors that are worked out when they are asked for."""

    origin: OriginVectors
    texts: Sequence[Sequence[str]] | WordsOfTexts

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Halves:
        some = [self.texts[text] for text in texts.tolist()]
        width = max((len(self.texts[text]) for text in (texts if among is None else among).tolist()), default=0)
        found = np.zeros((len(some), width, *self.origin.shape), np.float16)
        for row, vectors in zip(found, self.origin.of(some), strict=True):
            row[: len(vectors)] = vectors
        return found


def rounded(vectors: NDArray[np.float32]) -> Halves:
    """The vectors as float16; what is too large becomes the largest one."""
    return vectors.clip(-LARGEST, LARGEST).astype(np.float16)


def _origin_vectors(origin: Origin, features: ContextualSpecification, device: torch.device) -> OriginVectors:
    entry = origin.run.entry
    if not issubclass(entry.pipeline_class, ContextualPipeline):
        able = [found.what for found in task_entries() if issubclass(found.pipeline_class, ContextualPipeline)]
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
    return OriginVectors(origin, pipeline, tuple(layer % count for layer in layers), features.contextual_pooling)
