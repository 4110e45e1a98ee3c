"""The parts of a model that has one tokenizer, and the schemas of their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, Symbols, Vocabulary
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.texts.framing import Framing
from ensue.text.tokenizers import Tokenizer, restore_tokenizer


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
    special: dict[str, str] | None = None


class WordPieceContent(Vocabulary):
    """`tokenizer.json` of WordPiece."""

    kind: Literal["wordpiece"]
    symbols: Symbols


class PublishedContent(Vocabulary):
    """`tokenizer.json` of a published tokenizer."""

    kind: Literal["published"]
    tokenizer: dict[str, Any]
    special: dict[str, str]


TokenizerContent = Annotated[
    CharactersContent | BytesContent | WordsContent | SubwordsContent | WordPieceContent | PublishedContent,
    Field(discriminator="kind"),
]
"""`tokenizer.json`, or a tokenizer in it."""


class TokenizerConfig(Config):
    """The keys of `config.json` for a model with one tokenizer."""

    vocabulary_size: Size
    training_characters: Size | None = None
    """How many characters of the text were for training; older runs do not say it."""


@dataclass(frozen=True)
class TokenizerParts(ModelParts):
    """The tokenizer of a model that has one."""

    config: ClassVar[type[Config]] = TokenizerConfig
    content: ClassVar[Any] = TokenizerContent
    """The schema of `tokenizer.json`."""
    tokenizer: Tokenizer

    @property
    def vocabulary_size(self) -> int:
        """The number of symbols that the model knows."""
        return self.tokenizer.vocabulary_size

    @property
    def symbols(self) -> list[str]:
        """The text of each symbol, by its id."""
        return [self.tokenizer.symbol(id) for id in range(self.vocabulary_size)]

    def framing(self, recipe: Any) -> Framing | None:
        """How a model of this recipe reads texts for other models that begin from its layers; None if it cannot."""
        return None

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """Raises RunError if the file is missing or damaged, or if config.json has another size."""
        tokenizer = run.read_json("tokenizer.json", cls.content, restore_tokenizer)
        size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(tokenizer)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}
