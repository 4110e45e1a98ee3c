"""The recipes of tasks that read texts as words, in batches of similar length."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ensue.models.specification import ENCODER_KEYS, Directions, OriginEncoder, WordsEncoderSpecification
from ensue.models.word_specification import FeatureSpecification
from ensue.recipe.tables import SOLVER_KEYS, Recipe, Rows, TrainRecipe, TuningRecipe
from ensue.tasks.contract.chunks import check_num_units, max_positions

Splitter = Literal["whitespace", "simple", "treebank", "treebank-1", "characters"]


class TextsTrain(TrainRecipe):
    """The table `[train]` of a task that reads texts as words."""

    batch_size: Rows = 64
    """The maximum number of texts in a batch."""
    batch_tokens: Rows = 1_000
    """The maximum number of words in a batch, unless one text alone is longer."""
    adversarial: Annotated[float, Field(ge=0, le=100)] = 0.0
    """The norm of adversarial perturbations of word vectors, as a multiple of their mean norm, in a second pass over
    each batch; 0: none (Miyato et al. 2017).
    """


class WordsTuning(TuningRecipe):
    """The table `[tuning]` of a task that reads texts as words."""

    keep_labels: bool = False
    """Whether the model begins from all weights of `encoder.from`, a run of the same task; new labels are added."""


class WordsRecipe(Recipe):
    """A recipe of a task that reads texts as words. Limits on the length of texts bound memory to about a gigabyte."""

    unit: ClassVar[str]
    """An input and its elements in messages, such as "a sentence of words"."""
    max_recurrent_words: ClassVar[int]
    """The maximum number of words of an input for layers without attention."""
    too_long: ClassVar[str]
    """The remedy in the error about a longer input."""

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
    def unused_keys(self) -> tuple[str, ...]:
        return SOLVER_KEYS if getattr(getattr(self, "head", None), "solver", "") == "lbfgs" else ()

    def continuing(self, run: str) -> dict[str, Any]:
        return {"encoder.from": run, "tuning.keep_labels": True, "tuning.rehearse": True}

    @property
    def max_words(self) -> int:
        """The maximum number of words of an input."""
        return max_positions(self.encoder, self.max_recurrent_words)

    def check_length(self, words: int, path: str = "", line: int = 0) -> None:
        """Raise DataError (file:line) if a text has more words than the model reads."""
        check_num_units(
            self.unit, words, self.max_words, self.encoder, table="encoder", advice=self.too_long, path=path, line=line,
        )  # fmt: skip

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tuning.rehearse and not (self.tuning.keep_labels or self.is_gradient_free):
            yield "has tuning.rehearse, which requires tuning.keep_labels"
        if self.tuning.keep_labels and not getattr(self.encoder, "origin", ""):
            yield "has tuning.keep_labels, but no encoder.from, the run whose labels are kept"
        if self.tuning.keep_labels and self.features.vectors:
            yield "has tuning.keep_labels, which excludes features.vectors"
        if self.train.adversarial and getattr(getattr(self, "head", None), "pooling", None) == []:
            yield "has train.adversarial without head.pooling: a bag of n-grams has no vectors to perturb"

    @model_validator(mode="before")
    @classmethod
    def _use_origin_layers(cls, document: Any) -> Any:
        """Replace the layers of the document by the layers of `encoder.from`, without vectors of words by default."""
        encoder = document.get("encoder") if isinstance(document, dict) else None
        tuning = document.get("tuning") if isinstance(document, dict) else None
        if isinstance(tuning, dict) and tuning.get("keep_labels"):
            return document
        if not isinstance(encoder, dict) or not (encoder.get("from") or encoder.get("kind") == "origin"):
            return document
        names = {field.alias or name for name, field in OriginEncoder.model_fields.items()}
        encoder_keys = {name for kind in ENCODER_KEYS for name in kind}
        table = {key: value for key, value in encoder.items() if key in names or key not in encoder_keys}
        if encoder.get("kind") != "origin":
            table = {key: value for key, value in table.items() if not key.startswith("dropout")}
        features = document.get("features", {})
        if isinstance(features, dict):
            features = {"d_words": 0, **features}
        return document | {"encoder": table | {"kind": "origin"}, "features": features}
