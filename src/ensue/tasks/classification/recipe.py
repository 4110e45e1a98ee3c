"""The recipe of a classifier of texts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from ensue.data.detection.format_table import TEXTS, format_choices
from ensue.models.specification import Path
from ensue.models.word_specification import ClassHeadSpecification, ColumnName
from ensue.recipe.tables import DividedData
from ensue.tasks.words.recipe import Splitter, WordsRecipe

LengthOrZero = Annotated[int, Field(ge=0, le=2_000_000_000)]

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[format_choices(TEXTS)]


class ClassificationData(DividedData):
    """The table `[data]` of a classifier."""

    format: DataFormat = "auto"
    """The format of the files; auto: detected from their names and first lines."""
    texts: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the text, or of the two texts of a pair; empty: detected by names or contents."""
    labels: ColumnName = ""
    """The column or key of the label; empty: detected. Names of several columns of 0 and 1 are separated by commas."""
    joined: bool = False
    """Whether the columns of `texts` are joined to one text. If not, two columns are a pair."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row of a table names the columns."""
    separator: str = ""
    """The character between the labels in a field; empty: a field has one label (in fastText and JSON, a list)."""
    teacher: Path = ""
    """A file of JSON lines with `texts` and `probabilities`, the output of `predict --json`. The probabilities replace
    the labels of these texts in training (`ensue distill`).
    """
    splitter: Splitter = "simple"
    """The splitter of text into words."""
    max_tokens: LengthOrZero = 0
    """The number of words to which a text, or each text of a pair, is truncated; 0: no truncation."""
    keep: Literal["start", "end", "both"] = "start"
    """The words that truncation keeps: at the start, at the end, or (both) half of `max_tokens` at each end."""
    segment_tokens: LengthOrZero = 0
    """The number of words of a segment; segments are read left to right, with carried state. 0: no segments."""


class ClassificationRecipe(WordsRecipe):
    """The recipe of a classifier."""

    what: ClassVar[str] = "classifier"
    reads: ClassVar[str] = "texts, or pairs of texts, with labels"
    unit: ClassVar[str] = "a text of words"
    is_preparable: ClassVar[bool] = True
    max_recurrent_words: ClassVar[int] = 250_000
    too_long: ClassVar[str] = "cut it, or train with data.max_tokens, which truncates long texts"

    task: Literal["classification"] = "classification"
    data: ClassificationData = ClassificationData()
    head: ClassHeadSpecification = ClassHeadSpecification()

    @field_validator("head", mode="after")
    @classmethod
    def _pool_vectors(cls, head: ClassHeadSpecification, info: ValidationInfo) -> ClassHeadSpecification:
        """Return the head of a linear model with the mean as pooling if the model has `features.vectors`."""
        has_vectors = "features" in info.data and info.data["features"].vectors
        needs_pooling = has_vectors and head.solver == "lbfgs" and not head.pooling
        return head.model_copy(update={"pooling": ["mean"]}) if needs_pooling else head

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        head, features = self.head, self.features
        has_others = not features.model_copy(update={"vectors": ""}).is_empty or self.encoder.kind != "none"
        errors = (  # ngram_weights = "ratio" would use the labels of held-out texts in cross-validation
            head.pooling != (["mean"] if features.vectors else []), not head.ngrams, head.ngram_weights != "idf",
            head.dropout_ngrams, head.label_smoothing, features.vectors and (has_others or features.train_vectors),
            head.pooling and (head.d_hidden or head.dropout or features.dropout or self.data.segment_tokens),
        )  # fmt: skip
        if self.is_gradient_free and any(errors):
            needs = 'ngrams, ngram_weights = "idf", no dropout, no smoothing, and no layers'
            yield f'has head.solver = "lbfgs", which needs {needs} or features other than features.vectors'
