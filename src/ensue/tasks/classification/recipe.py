"""Recipes of classifiers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ensue.models.feature_specification import ClassHeadSpecification, ColumnName, FeatureSpecification
from ensue.recipe.tables import DataRecipe
from ensue.tasks.words.recipe import Splitter, WordsRecipe

Optional = Annotated[int, Field(ge=0, le=2_000_000_000)]


class ClassificationData(DataRecipe):
    format: Literal[
        "auto", "tsv", "csv", "csv-semicolon", "json", "fasttext", "first-word", "class-files", "folders"
    ] = "auto"
    """What the files are; auto: what their names and first lines show."""
    texts: list[ColumnName] = Field(default_factory=list)
    """Which columns or keys hold the text, or the two texts of a pair; empty: found by names or contents."""
    labels: ColumnName = ""
    """Which column or key holds the label; empty: found by name or contents."""
    joined: bool = False
    """Whether the columns of `texts` are one text in parts, and not a pair that is compared."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row of a table names the columns."""
    separator: str = ""
    """What stands between several labels in a field; empty: a field is one label. fastText and JSON lists need none."""
    splitter: Splitter = "simple"
    """How text is cut into words."""
    max_tokens: Optional = 0
    """Longer texts are cut to this many words (each text of a pair by itself); 0: read whole."""
    keep: Literal["start", "end", "both"] = "start"
    """Which part of a text that is too long is kept."""
    segment_tokens: Optional = 0
    """Long texts are read in segments of this many words, state carried; needs `directions.bidirectional = false`. 0:
    in one piece."""


class ClassificationRecipe(WordsRecipe):
    what: ClassVar[str] = "classifier"
    unit: ClassVar[str] = "a text"
    most_words: ClassVar[int] = 250_000
    too_long: ClassVar[str] = "cut it, or train with data.max_tokens, which reads a part of long texts"

    task: Literal["classification"] = "classification"
    data: ClassificationData = ClassificationData()
    features: FeatureSpecification = FeatureSpecification()
    head: ClassHeadSpecification = ClassHeadSpecification()
