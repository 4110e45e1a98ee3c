"""The tokenizer of a run that has one: the schemas of its file, and reading it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError, Symbols, Vocabulary
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


class WordPieceContent(Vocabulary):
    """`tokenizer.json` of WordPiece."""

    kind: Literal["wordpiece"]
    symbols: Symbols


TokenizerContent = Annotated[
    CharactersContent | BytesContent | WordsContent | SubwordsContent | WordPieceContent, Field(discriminator="kind")
]
"""`tokenizer.json`, or a tokenizer in it."""


def read_tokenizer(run: RunDirectory) -> Tokenizer:
    """The tokenizer of a run. Raises RunError if its file is missing or damaged, or if config.json has another size."""
    tokenizer: Tokenizer = run.read_json("tokenizer.json", TypeAdapter(TokenizerContent), restore_tokenizer)
    size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
    if size != expected:
        raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
    return tokenizer
