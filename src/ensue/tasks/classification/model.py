"""The parts of a classifier: its lexicon, its labels, and whether it compares two texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ensue.data.examples import DocumentLayout
from ensue.models.build_text import build_classifier
from ensue.models.classifier import Classifier
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, form_of
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.texts import subword_reader
from ensue.tasks.words.model import WordParts, WordsConfig
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.labels import Classes


class ClassificationConfig(WordsConfig):
    """`config.json`."""

    layout: Annotated[dict[str, Any], form_of(DocumentLayout)]
    pair: bool
    ngrams: Annotated[int, Field(ge=0, le=1 << 32)] | None = None
    """The number of rows that the bag of n-grams keeps. In older runs it has all of them."""


@dataclass(frozen=True)
class ClassifierParts(WordParts):
    """The parts of a classifier; `pair` tells whether it compares two texts, `ngrams` how many rows its bag keeps."""

    config: ClassVar[type[Config]] = ClassificationConfig
    labels: Classes
    pair: bool
    ngrams: int | None = field(default=None, kw_only=True)

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        labels = run.read_json("labels.json", Classes.from_json)
        return cls(**cls.shared(run), labels=labels, pair=run.config["pair"], ngrams=run.config.get("ngrams"))

    def subwords(self, recipe: ClassificationRecipe) -> SubwordReader | None:
        return subword_reader(recipe, self.tuned)

    def build(self, recipe: ClassificationRecipe) -> Classifier:
        model = build_classifier(
            recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=self.lexicon,
            num_labels=len(self.labels), multiple=self.labels.multiple, pair=self.pair,
            segment=recipe.data.segment_tokens, pretrained=self.pretrained, contextual=self.contextual,
            tuned=self.tuned_encoder(), ngrams=self.ngrams,
        )  # fmt: skip
        model.temperature = self.labels.temperature
        return model
