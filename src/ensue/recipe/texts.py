"""What the recipes of taggers and classifiers share: they read whole texts, batched by length."""

from __future__ import annotations

from typing import Literal

from ensue.recipe.tables import Rows, TrainRecipe

Splitter = Literal["whitespace", "simple", "treebank", "characters"]


class TextsTrain(TrainRecipe):
    batch_size: Rows = 64
    """At most this many texts go into a batch."""
    batch_tokens: Rows = 1_000
    """At most this many words go into a batch, unless one text alone is longer."""
