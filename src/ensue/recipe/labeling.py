"""Recipes of taggers."""

from __future__ import annotations

from typing import ClassVar, Literal

from ensue.models.feature_specification import ColumnName, SentenceFeatureSpecification, TagHeadSpecification
from ensue.models.specification import ReaderSpecification
from ensue.recipe.tables import DataRecipe, Recipe
from ensue.recipe.texts import Splitter, TextsTrain


class LabelingData(DataRecipe):
    format: Literal["auto", "columns", "conllu", "json"] = "auto"
    """What the files are; auto: what their names and first lines show."""
    words: ColumnName = ""
    """Which column or key holds the words; empty: the format's own (column 1, form, "tokens" or "text")."""
    labels: ColumnName = ""
    """Which column or key holds the labels; empty: the format's own (the last column, upos, "labels" or "spans")."""
    splitter: Splitter = "treebank"
    """How raw text is cut into words, at use and where data hold text."""


class LabelingRecipe(Recipe):
    what: ClassVar[str] = "tagger"

    task: Literal["labeling"] = "labeling"
    data: LabelingData = LabelingData()
    features: SentenceFeatureSpecification = SentenceFeatureSpecification()
    model: ReaderSpecification
    head: TagHeadSpecification = TagHeadSpecification()
    train: TextsTrain
