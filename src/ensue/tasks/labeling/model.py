"""The lexicon and the labels of a tagger, which its run stores."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ensue.errors import quote
from ensue.models.build_text import build_tagger
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Number
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.words.model import WordParts, WordsConfig
from ensue.text.label_columns import LabelColumns, NestedLabels, TaggerLabels
from ensue.text.labels import Labels


class LabelingConfig(WordsConfig):
    """The keys of `config.json` for a tagger."""

    format: str
    words: str
    labels: str | list[str]
    width: Number


@dataclass(frozen=True)
class TaggerParts(WordParts):
    """The lexicon and the labels of a tagger."""

    config: ClassVar[type[Config]] = LabelingConfig
    labels: TaggerLabels

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        fields, recipe = cls.read_fields(run), run.recipe
        columns = fields["lexicon"].columns
        assert isinstance(recipe, LabelingRecipe)
        if set(columns) != set(recipe.features.columns):
            names = ", ".join(columns) or "none"
            raise DamagedError(f"{run.path / 'tokenizer.json'}: does not match the model: columns {quote(names)}")
        label_columns = recipe.data.label_columns
        kind: Any = LabelColumns if label_columns else NestedLabels if recipe.data.nested else Labels
        labels = run.read_json("labels.json", kind.from_json)
        if label_columns and set(labels.names) != set(label_columns):
            names = ", ".join(labels.names)
            raise DamagedError(f"{run.path / 'labels.json'}: does not match the model: columns {quote(names)}")
        return cls(**fields, labels=labels)

    def example(self, recipe: LabelingRecipe) -> str:
        return "" if recipe.features.columns else "Janet will back the bill"

    def build(self, recipe: LabelingRecipe) -> Tagger:
        return build_tagger(
            recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=self.lexicon,
            labels=self.labels, pretrained=self.pretrained, contextual=self.contextual, tuned=self.tuned_encoder(),
        )  # fmt: skip
