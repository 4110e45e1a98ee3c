"""Tokenizers of every kind: train one, save it, load it. The kinds are in the files beside this one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ensue.errors import RecipeError, RunError, nearest
from ensue.parsing import parse_json
from ensue.text.characters import CharacterTokenizer
from ensue.text.published import PublishedTokenizer
from ensue.text.subwords import SubwordTokenizer
from ensue.text.tokenizer import Decoder, Tokenizer
from ensue.text.utf8 import ByteTokenizer
from ensue.text.wordpiece import WordPieceTokenizer
from ensue.text.words import WordTokenizer

__all__ = ["KINDS", "Decoder", "Tokenizer", "load_tokenizer", "save_tokenizer", "train_tokenizer"]

KINDS: dict[str, type[Tokenizer]] = {
    "characters": CharacterTokenizer,
    "bytes": ByteTokenizer,
    "words": WordTokenizer,
    "bpe": SubwordTokenizer,
    "wordpiece": WordPieceTokenizer,
    "published": PublishedTokenizer,
}


def train_tokenizer(
    kind: str,
    chunks: Iterable[str],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    splitter: str = "whitespace",
    lowercase: bool = False,
) -> Tokenizer:
    """A tokenizer of `kind`, trained on the text of `chunks`, which are read once.

    `min_count` and `max_size` limit the vocabulary, except for bytes; `splitter` is for words. Raises RecipeError for
    an unknown kind or splitter.
    """
    match kind:
        case "characters":
            return CharacterTokenizer.train(chunks, min_count=min_count, max_size=max_size, lowercase=lowercase)
        case "bytes":
            return ByteTokenizer(lowercase=lowercase)
        case "words":
            return WordTokenizer.train(
                chunks, min_count=min_count, max_size=max_size, splitter=splitter, lowercase=lowercase
            )
        case "bpe":
            return SubwordTokenizer.train(chunks, min_count=min_count, max_size=max_size, lowercase=lowercase)
        case "wordpiece":
            return WordPieceTokenizer.train(chunks, min_count=min_count, max_size=max_size, lowercase=lowercase)
        case "published":
            raise RecipeError('a tokenizer of the kind "published" is not trained: it comes with an imported model')
    raise RecipeError(f'unknown tokenizer "{kind}"; expected one of {", ".join(KINDS)}{nearest(kind, KINDS)}')


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Writes `tokenizer` to `path` as JSON."""
    Path(path).write_text(json.dumps(tokenizer.to_json()) + "\n", encoding="utf-8")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer saved at `path`. Raises RunError if the file is missing, damaged or of a newer format."""
    try:
        return Tokenizer.from_json(parse_json(Path(path).read_bytes()))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(f"{path}: not a tokenizer ({' '.join(str(error).split())})") from error
