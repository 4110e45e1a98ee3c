"""The recipes of taggers of words, and of cutters."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from ensue.data.detection.format_table import SENTENCES, format_choices
from ensue.models.specification import Path
from ensue.models.word_specification import ColumnName, SentenceFeatureSpecification, TagHeadSpecification
from ensue.recipe.tables import DividedData
from ensue.tasks.words.recipe import Splitter, WordsRecipe

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[format_choices(SENTENCES)]


class LabelingData(DividedData):
    """The table `[data]` of a tagger."""

    format: DataFormat = "auto"
    """The format of the files; auto: detected from their names and first lines."""
    words: ColumnName = ""
    """The column or key of the words; empty: the format's default (column 1, form, "tokens" or "text")."""
    labels: ColumnName | Annotated[list[ColumnName], Field(min_length=1)] = ""
    """The column or key of the labels; empty: the format's default (the last column, upos, "labels" or "spans"). In a
    list of columns each column has a head; "feats" has a head for each attribute, and "lemma" learns edit scripts.
    """
    nested: Annotated[int, Field(ge=0, le=10)] = 0
    """The maximum number of layers of a class, for spans that overlap. A layer has spans of one class that do not
    overlap, and a head of the model. 0: spans do not overlap.
    """
    teacher: Path = ""
    """A file of JSON lines with `tokens` and `probabilities` of tags, which replace labels (`ensue distill`)."""
    division: Literal["labels", "classes", "sources", "rows"] = "labels"  # type: ignore[assignment]
    """How sentences are split into training and validation. labels: by group, so that each label is in both. The
    others are for runs of earlier versions; classes and sources: by group; rows: by row.
    """
    splitter: Splitter = "treebank"
    """The splitter of running text into words, for prediction and for data with text."""
    context_words: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The maximum number of words of consecutive sentences that are read together; 0: each sentence is read alone."""

    def problems(self) -> Iterator[str]:
        if self.nested and self.label_columns:
            yield "has nested for several columns of labels; expected one column of spans"
        if self.teacher and (self.nested or self.label_columns):
            yield "has a teacher, which is for one column of labels whose spans do not overlap"

    @property
    def label_columns(self) -> list[str]:
        """The names of several columns of labels; empty for one column."""
        return self.labels if isinstance(self.labels, list) else []

    @property
    def label_column(self) -> str:
        """The name of the only column of labels; "" for the default of the format."""
        return self.labels if isinstance(self.labels, str) else ""

    @field_validator("labels", mode="after")
    @classmethod
    def _check_unique(cls, labels: str | list[str]) -> str | list[str]:
        if isinstance(labels, list) and len({*labels}) < len(labels):
            raise ValueError("names a column twice")
        return labels


class LabelingRecipe(WordsRecipe):
    """The recipe of a tagger."""

    what: ClassVar[str] = "tagger"
    rehearses: ClassVar[bool] = True
    is_preparable: ClassVar[bool] = True
    reads: ClassVar[str] = "sentences with a label for each word"
    unit: ClassVar[str] = "a sentence of words"
    max_recurrent_words: ClassVar[int] = 100_000  # fewer than for a classifier, which stores less for each word
    too_long: ClassVar[str] = "end sentences with a line end, or with a blank line between columns"

    task: Literal["labeling"] = "labeling"
    data: LabelingData = LabelingData()
    features: SentenceFeatureSpecification = SentenceFeatureSpecification()
    head: TagHeadSpecification = TagHeadSpecification()

    def continuing(self, run: str) -> dict[str, Any]:  # the solver's weights do not depend on initial weights
        return {"tuning.rehearse": True} if self.is_gradient_free else super().continuing(run)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        features = self.features
        misfits = [self.encoder.kind != "none", features.characters != "none", features.vectors, features.contextual]
        misfits += [features.dropout, features.dropout_words, not features.d_words, self.head.repeats]
        if self.is_gradient_free and (any(misfits) or self.tuning.keep_labels):
            yield 'has head.solver = "lbfgs" without words, or with layers, characters, vectors, dropout or keep_labels'


class CuttingData(LabelingData):
    """The table `[data]` of a cutter: treebanks in CoNLL-U."""

    format: Literal["conllu-text"] = "conllu-text"  # type: ignore[assignment]
    """The format: a treebank is read as the characters of its paragraphs; `SpaceAfter=No` marks missing spaces."""


class CuttingRecipe(LabelingRecipe):
    """The recipe of a cutter, a tagger of the characters of running text."""

    what: ClassVar[str] = "cutter"
    reads: ClassVar[str] = "treebanks in CoNLL-U"
    unit: ClassVar[str] = "a paragraph of characters"
    too_long: ClassVar[str] = "end paragraphs with a blank line, or with # newpar in a treebank"

    task: Literal["cutting"] = "cutting"  # type: ignore[assignment]
    data: CuttingData = CuttingData()
