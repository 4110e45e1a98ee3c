"""The parts of a masked language model: its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ensue.models.build import build_masked_language_model
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from ensue.tasks.model import ModelParts
from ensue.tasks.tokenizer import read_tokenizer
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.tokenizers import Tokenizer


class MaskedConfig(Config):
    """`config.json`."""

    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True)
class MaskedLanguageModelParts(ModelParts):
    """The tokenizer of a masked language model."""

    config: ClassVar[type[Config]] = MaskedConfig
    tokenizer: Tokenizer

    @cached_property
    def coder(self) -> MaskedTokenizer:
        """The tokenizer with the special tokens."""
        return MaskedTokenizer(self.tokenizer)

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_tokenizer(run))

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def build(self, recipe: MaskedLanguageModelingRecipe) -> MaskedLanguageModel:
        return build_masked_language_model(
            recipe.encoder,
            vocabulary_size=self.coder.vocabulary_size,
            num_segments=recipe.input.segments,
            next_sentence=recipe.data.next_sentence,
        )
