"""Functions that train, save and load tokenizers of any kind."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ensue.errors import RecipeError, RunError, look_up
from ensue.parsing import parse_json, read_bounded
from ensue.text.published import PublishedTokenizer
from ensue.text.subwords import SubwordTokenizer
from ensue.text.tokenizer import ByteTokenizer, CharacterTokenizer, Decoder, Tokenizer, WordTokenizer
from ensue.text.wordpiece import WordPieceTokenizer

__all__ = ["KINDS", "Decoder", "Tokenizer", "load_tokenizer", "save_tokenizer", "train_tokenizer"]

KINDS: dict[str, type[Tokenizer]] = {
    "characters": CharacterTokenizer, "bytes": ByteTokenizer, "words": WordTokenizer, "bpe": SubwordTokenizer,
    "wordpiece": WordPieceTokenizer, "published": PublishedTokenizer,
}  # fmt: skip


def train_tokenizer(
    kind: str, chunks: Iterable[str], *, min_count: int = 1, max_size: int | None = None,
    splitter: str = "whitespace", lowercase: bool = False, base: Tokenizer | None = None,
) -> Tokenizer:  # fmt: skip
    """Return a tokenizer trained on a text.

    Args:
        kind: A key of `KINDS` except "published".
        chunks: The text, which is read once.
        min_count: The minimum frequency of a symbol. Ignored for bytes.
        max_size: The maximum size of the vocabulary. Ignored for bytes.
        splitter: The splitter of the kind "words".
        lowercase: Whether to lowercase texts first.
        base: A tokenizer of this kind to which new symbols of the text are added (`Tokenizer.extend`), if any.

    Raises:
        RecipeError: The kind or the splitter is unknown, or tokenizers of this kind cannot be trained.
    """
    if kind == "bytes":
        return ByteTokenizer(lowercase=lowercase)
    if kind == "published" and base is None:
        raise RecipeError('a tokenizer of the kind "published" cannot be trained; it is imported with a model')
    tokenizer_class: Any = look_up(KINDS, kind, "tokenizer")
    options: dict[str, Any] = {"min_count": min_count, "max_size": max_size, "lowercase": lowercase}
    options |= {"splitter": splitter} if kind == "words" else {}
    return (tokenizer_class.train if base is None else base.extend)(chunks, **options)


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a tokenizer as JSON."""
    Path(path).write_text(json.dumps(tokenizer.to_json()) + "\n", encoding="utf-8")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer from `path`. Raises RunError if the file is missing or damaged, or has a newer format."""
    try:
        return Tokenizer.from_json(parse_json(read_bounded(Path(path))))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(f"{path}: not a tokenizer ({' '.join(str(error).split())})") from error
