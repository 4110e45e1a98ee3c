"""What the recipes of taggers and classifiers share: they read whole texts, batched by length."""

from __future__ import annotations

from typing import ClassVar, Literal

from ensue.models.specification import Directions, EncoderSpecification
from ensue.recipe.tables import Recipe, Rows, TrainRecipe

Splitter = Literal["whitespace", "simple", "treebank", "characters"]


class TextsTrain(TrainRecipe):
    batch_size: Rows = 64
    """At most this many texts go into a batch."""
    batch_tokens: Rows = 1_000
    """At most this many words go into a batch, unless one text alone is longer."""


class WordsRecipe(Recipe):
    """The longest text that is read whole ends in time, and needs about a gigabyte at most."""

    unit: ClassVar[str]
    """What is read as one: "a sentence"."""
    most_words: ClassVar[int]
    """Words of the longest one, but for attention, whose time goes with their square."""
    too_long: ClassVar[str]
    """What to do about a longer one."""

    encoder: EncoderSpecification
    directions: Directions = Directions()
    train: TextsTrain
