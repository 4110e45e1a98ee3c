"""The parts of a tagger: its lexicon and its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ensue.models.build_text import build_tagger
from ensue.models.tagger import Tagger
from ensue.parsing import shown
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Number
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.words.model import WordParts, WordsConfig
from ensue.text.label_columns import LabelColumns, NestedLabels, TaggerLabels
from ensue.text.labels import Labels


class LabelingConfig(WordsConfig):
    """`config.json`."""

    format: str
    words: str
    labels: str | list[str]
    width: Number


@dataclass(frozen=True)
class TaggerParts(WordParts):
    """The lexicon, the labels and the format of a tagger."""

    config: ClassVar[type[Config]] = LabelingConfig
    labels: TaggerLabels

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        shared, recipe = cls.shared(run), run.recipe
        columns = shared["lexicon"].columns
        assert isinstance(recipe, LabelingRecipe)
        if set(columns) != set(recipe.features.columns):
            names = ", ".join(columns) or "none"
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has the columns {shown(names)}")
        labels: TaggerLabels
        if recipe.data.label_columns:
            labels = run.read_json("labels.json", LabelColumns.from_json)
            if set(labels.names) != set(recipe.data.label_columns):
                names = ", ".join(labels.names)
                raise DamagedError(f"{run.path / 'labels.json'}: not the model's: it has the columns {shown(names)}")
        elif recipe.data.nested:
            labels = run.read_json("labels.json", NestedLabels.from_json)
        else:
            labels = run.read_json("labels.json", Labels.from_json)
        return cls(**shared, labels=labels)

    def build(self, recipe: LabelingRecipe) -> Tagger:
        return build_tagger(
            recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=self.lexicon,
            labels=self.labels, pretrained=self.pretrained, contextual=self.contextual,
            tuned=self.tuned_encoder(),
        )  # fmt: skip
