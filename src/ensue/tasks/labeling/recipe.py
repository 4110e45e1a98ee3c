"""Recipes of taggers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ensue.models.feature_specification import ColumnName, SentenceFeatureSpecification, TagHeadSpecification
from ensue.recipe.tables import DataRecipe
from ensue.tasks.words.recipe import Splitter, WordsRecipe


class LabelingData(DataRecipe):
    format: Literal["auto", "columns", "conllu", "json"] = "auto"
    """What the files are; auto: what their names and first lines show."""
    words: ColumnName = ""
    """Which column or key holds the words; empty: the format's own (column 1, form, "tokens" or "text")."""
    labels: ColumnName = ""
    """Which column or key holds the labels; empty: the format's own (the last column, upos, "labels" or "spans")."""
    splitter: Splitter = "treebank"
    """How raw text is cut into words, at use and where data hold text."""
    context_words: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Consecutive sentences of a document are read together, up to this many words; 0: each sentence by itself."""


class LabelingRecipe(WordsRecipe):
    what: ClassVar[str] = "tagger"
    unit: ClassVar[str] = "a sentence"
    most_words: ClassVar[int] = 100_000  # fewer than of a text, as more is kept of each word
    too_long: ClassVar[str] = "end sentences with a line end, or with a blank line between columns"

    task: Literal["labeling"] = "labeling"
    data: LabelingData = LabelingData()
    features: SentenceFeatureSpecification = SentenceFeatureSpecification()
    head: TagHeadSpecification = TagHeadSpecification()
