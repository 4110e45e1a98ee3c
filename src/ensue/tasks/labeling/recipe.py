"""The recipes of a tagger of words, and of a cutter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from ensue.data.detection.format_table import SENTENCES, settings_of
from ensue.models.specification import Path
from ensue.models.word_specification import (
    ColumnName,
    SentenceFeatureSpecification,
    TagHeadSpecification,
)
from ensue.recipe.tables import DividedData
from ensue.tasks.words.recipe import Splitter, WordsRecipe

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[settings_of(SENTENCES)]


class LabelingData(DividedData):
    """The table `[data]` of a tagger."""

    format: DataFormat = "auto"
    """The format of the files; auto: by their names and first lines."""
    words: ColumnName = ""
    """The column or key of the words; empty: the format's default (column 1, form, "tokens" or "text")."""
    labels: ColumnName | Annotated[list[ColumnName], Field(min_length=1)] = ""
    """The column or key of the labels; empty: the format's default (the last column, upos, "labels" or "spans"). In a
    list of columns each has a head; "feats" has one for each attribute, and "lemma" learns edit scripts of the form.
    """
    nested: Annotated[int, Field(ge=0, le=10)] = 0
    """The largest number of layers of a class, for spans that overlap. Each class has a head, and spans of one class
    that overlap are in several layers, each with a head. 0: spans do not overlap.
    """
    teacher: Path = ""
    """A file of JSON lines with `tokens` and `probabilities` of the tags of each. What it says of training sentences is
    learned in place of their labels (`ensue distill`).
    """
    splitter: Splitter = "treebank"
    """How running text is cut into words, in prediction and in data that have text."""
    context_words: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Consecutive sentences of a document are read together, up to this many words; 0: each sentence by itself."""

    @model_validator(mode="after")
    def _one_column(self) -> Self:
        if self.nested and self.label_columns:
            raise ValueError("has nested for several columns of labels; expected one column of spans")
        if self.teacher and (self.nested or self.label_columns):
            raise ValueError("has a teacher, which is for one column of labels whose spans do not overlap")
        return self

    @property
    def label_columns(self) -> list[str]:
        """The columns of a tagger of several; empty for one."""
        return self.labels if isinstance(self.labels, list) else []

    @property
    def label_column(self) -> str:
        """The column of a tagger of one; "" for the format's default."""
        return self.labels if isinstance(self.labels, str) else ""

    @field_validator("labels", mode="after")
    @classmethod
    def _once(cls, labels: str | list[str]) -> str | list[str]:
        if isinstance(labels, list) and len({*labels}) < len(labels):
            raise ValueError("names a column twice")
        return labels


class LabelingRecipe(WordsRecipe):
    """The recipe of a tagger."""

    what: ClassVar[str] = "tagger"
    keeps_examples: ClassVar[bool] = True
    reads: ClassVar[str] = "sentences with a label for each word"
    unit: ClassVar[str] = "a sentence of words"
    most_words: ClassVar[int] = 100_000  # fewer than of a text, as more is kept of each word
    too_long: ClassVar[str] = "end sentences with a line end, or with a blank line between columns"

    task: Literal["labeling"] = "labeling"
    data: LabelingData = LabelingData()
    features: SentenceFeatureSpecification = SentenceFeatureSpecification()
    head: TagHeadSpecification = TagHeadSpecification()


class CuttingData(LabelingData):
    """The table `[data]` of a cutter: treebanks in CoNLL-U."""

    format: Literal["conllu-text"] = "conllu-text"  # type: ignore[assignment]
    """The characters of the text, which follows from forms and `SpaceAfter=No`, in paragraphs."""


class CuttingRecipe(LabelingRecipe):
    """The recipe of a cutter, a tagger of the characters of running text."""

    what: ClassVar[str] = "cutter"
    reads: ClassVar[str] = "treebanks in CoNLL-U"
    unit: ClassVar[str] = "a paragraph of characters"
    too_long: ClassVar[str] = "end paragraphs with a blank line, or with # newpar in a treebank"

    task: Literal["cutting"] = "cutting"  # type: ignore[assignment]
    data: CuttingData = CuttingData()
