"""The recipes of tasks that read whole texts, in batches of similar length."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import ENCODER_KEYS, Directions, OriginEncoder, WordsEncoderSpecification
from ensue.models.word_specification import FeatureSpecification
from ensue.recipe.tables import Recipe, Rows, TrainRecipe, TuningRecipe
from ensue.tasks.contract.chunks import check_read, most_read

Splitter = Literal["whitespace", "simple", "treebank", "treebank-1", "characters"]


class TextsTrain(TrainRecipe):
    """The table `[train]` of a task that reads whole texts."""

    batch_size: Rows = 64
    """At most this many texts go into a batch."""
    batch_tokens: Rows = 1_000
    """At most this many words go into a batch, unless one text alone is longer."""
    adversarial: Annotated[float, Field(ge=0, le=100)] = 0.0
    """A second pass over each batch, whose vectors move to where the loss of their text rises most, by this multiple of
    their mean norm; 0: none (Miyato et al. 2017).
    """


class WordsTuning(TuningRecipe):
    """The table `[tuning]` of a task that reads whole texts."""

    keep_labels: bool = False
    """The model begins from the whole of `encoder.from`, a run of the same task: layers, features, vocabulary, and the
    rows of the head by the names of the labels. Labels that are new are added.
    """
    rehearse: bool = False
    """With `keep_labels`, for labels that write spans: spans that the origin finds in the training and validation data
    are added, if the data have no span of their class, and no span on their words.
    """


class WordsRecipe(Recipe):
    """A recipe of a task that reads whole texts. The limit on their length keeps memory at about a gigabyte."""

    unit: ClassVar[str]
    """The unit of reading and its parts, such as "a sentence of words"."""
    most_words: ClassVar[int]
    """The most words of a unit, except for attention, whose time grows with their square."""
    too_long: ClassVar[str]
    """The advice for a longer one."""

    features: FeatureSpecification = FeatureSpecification()
    encoder: WordsEncoderSpecification
    directions: Directions = Directions()
    train: TextsTrain
    tuning: WordsTuning = WordsTuning()

    @property
    def origins(self) -> tuple[str, ...]:
        begins = isinstance(self.encoder, OriginEncoder) or self.tuning.keep_labels
        tuned = getattr(self.encoder, "origin", "") if begins else ""
        return tuple(dict.fromkeys([*self.features.contextual, *([tuned] if tuned else [])]))

    @property
    def most_read(self) -> int:
        """The most words of a unit that the model reads whole."""
        return most_read(self.encoder, self.most_words)

    def check_length(self, words: int, path: str = "", line: int = 0) -> None:
        """Raises DataError, with file and line, if a text has more `words` than the model reads."""
        check_read(
            self.unit, words, self.most_read, self.encoder, table="encoder", advice=self.too_long,
            path=path, line=line,
        )  # fmt: skip

    @model_validator(mode="after")
    def _keeps(self) -> Self:
        if self.tuning.rehearse and not self.tuning.keep_labels:
            raise ValueError("has tuning.rehearse, which goes with tuning.keep_labels")
        if self.tuning.keep_labels and not getattr(self.encoder, "origin", ""):
            raise ValueError("has tuning.keep_labels, but no encoder.from, the run whose labels are kept")
        if self.tuning.keep_labels and self.features.vectors:
            raise ValueError("has tuning.keep_labels, which does not go with features.vectors")
        if self.train.adversarial and getattr(getattr(self, "head", None), "pooling", None) == []:
            raise ValueError("has train.adversarial, and no head.pooling: n-grams alone have no vectors to move")
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_origin(cls, document: Any) -> Any:
        """With `encoder.from` the layers are those of that run, whatever others the recipe has; features of words are
        added only if the recipe names them. With `tuning.keep_labels` the recipe has to describe the run.
        """
        encoder = document.get("encoder") if isinstance(document, dict) else None
        tuning = document.get("tuning") if isinstance(document, dict) else None
        if isinstance(tuning, dict) and tuning.get("keep_labels"):
            return document
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
