"""The recipes of tasks that read whole texts, in batches of similar length."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from ensue.models.specification import ENCODER_KEYS, Directions, OriginEncoder, WordsEncoderSpecification
from ensue.models.word_specification import FeatureSpecification
from ensue.recipe.tables import Recipe, Rows, TrainRecipe
from ensue.tasks.contract.windows import check_read, most_read

Splitter = Literal["whitespace", "simple", "treebank", "treebank-1", "characters"]


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
    encoder: WordsEncoderSpecification
    directions: Directions = Directions()
    train: TextsTrain

    @property
    def origins(self) -> tuple[str, ...]:
        tuned = self.encoder.origin if isinstance(self.encoder, OriginEncoder) else ""
        return tuple(dict.fromkeys([*self.features.contextual, *([tuned] if tuned else [])]))

    @property
    def most_read(self) -> int:
        """The most words of a unit that the model reads whole."""
        return most_read(self.encoder, self.most_words)

    def check_length(self, words: int, path: str = "", line: int = 0) -> None:
        """Raises DataError, with file and line, if a text has more `words` than the model reads."""
        check_read(
            f"{self.unit} of words", words, self.most_read, self.encoder, table="encoder", advice=self.too_long,
            path=path, line=line,
        )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _from_origin(cls, document: Any) -> Any:
        """With `encoder.from` the layers are those of that run, whatever others the recipe has; features of words are
        added only if the recipe names them.
        """
        encoder = document.get("encoder") if isinstance(document, dict) else None
        if not isinstance(encoder, dict) or not (encoder.get("from") or encoder.get("kind") == "origin"):
            return document
        names = {field.alias or name for name, field in OriginEncoder.model_fields.items()}
        others = {name for kind in ENCODER_KEYS for name in kind}
        kept = {key: value for key, value in encoder.items() if key in names or key not in others}
        if encoder.get("kind") != "origin":
            kept = {key: value for key, value in kept.items() if not key.startswith("dropout")}
        features = document.get("features", {})
        if isinstance(features, dict):
            features = {"d_words": 0, **features}
        return document | {"encoder": kept | {"kind": "origin"}, "features": features}
