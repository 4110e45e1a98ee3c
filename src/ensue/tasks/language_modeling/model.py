"""The parts of a language model: its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ensue.models.build import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.model import ModelParts
from ensue.tasks.tokenizer import read_tokenizer
from ensue.text.tokenizers import Tokenizer


class LanguageConfig(Config):
    """`config.json`."""

    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True)
class LanguageModelParts(ModelParts):
    """The tokenizer of a language model."""

    config: ClassVar[type[Config]] = LanguageConfig
    tokenizer: Tokenizer

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_tokenizer(run))

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def build(self, recipe: LanguageModelingRecipe) -> LanguageModel:
        return build_language_model(recipe.tokens, recipe.encoder, vocabulary_size=self.tokenizer.vocabulary_size)
