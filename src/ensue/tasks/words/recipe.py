"""The recipes of tasks that read whole texts, in batches of similar length."""

from __future__ import annotations

from typing import ClassVar, Literal

from ensue.models.feature_specification import FeatureSpecification
from ensue.models.specification import Directions, EncoderSpecification
from ensue.recipe.tables import Recipe, Rows, TrainRecipe

Splitter = Literal["whitespace", "simple", "treebank", "characters"]


class TextsTrain(TrainRecipe):
    """The table `[train]` of a task that reads whole texts."""

    batch_size: Rows = 64
    """At most this many texts go into a batch."""
    batch_tokens: Rows = 1_000
    """At most this many words go into a batch, unless one text alone is longer."""


class WordsRecipe(Recipe):
    """A recipe of a task that reads whole texts. The limit on their length keeps memory at about a gigabyte."""

    unit: ClassVar[str]
    """The unit of reading, such as "a sentence"."""
    most_words: ClassVar[int]
    """The most words of a unit, except for attention, whose time grows with their square."""
    too_long: ClassVar[str]
    """The advice for a longer one."""

    features: FeatureSpecification = FeatureSpecification()
    encoder: EncoderSpecification
    directions: Directions = Directions()
    train: TextsTrain

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(self.features.contextual)
