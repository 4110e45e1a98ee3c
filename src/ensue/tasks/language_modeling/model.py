"""The parts of a language model: its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter

from ensue.models.build import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Symbols, Vocabulary
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.model import ModelParts
from ensue.text.tokenizers import Tokenizer, restore_tokenizer


class LanguageConfig(Config):
    """`config.json`."""

    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)]


class CharactersContent(Vocabulary):
    """`tokenizer.json` of characters."""

    kind: Literal["characters"]
    symbols: Symbols


class BytesContent(Vocabulary):
    """`tokenizer.json` of bytes."""

    kind: Literal["bytes"]


class WordsContent(Vocabulary):
    """`tokenizer.json` of words."""

    kind: Literal["words"]
    splitter: str
    symbols: Symbols


class SubwordsContent(Vocabulary):
    """`tokenizer.json` of subwords."""

    kind: Literal["bpe"]
    tokenizer: dict[str, Any]


TOKENIZER: TypeAdapter[Any] = TypeAdapter(
    Annotated[CharactersContent | BytesContent | WordsContent | SubwordsContent, Field(discriminator="kind")]
)
"""`tokenizer.json`."""


@dataclass(frozen=True)
class LanguageModelParts(ModelParts):
    """The tokenizer of a language model."""

    config: ClassVar[type[Config]] = LanguageConfig
    tokenizer: Tokenizer

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        tokenizer = run.read_json("tokenizer.json", TOKENIZER, restore_tokenizer)
        size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(tokenizer)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def build(self, recipe: LanguageModelingRecipe) -> LanguageModel:
        return build_language_model(recipe.tokens, recipe.encoder, vocabulary_size=self.tokenizer.vocabulary_size)
