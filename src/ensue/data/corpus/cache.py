"""Ids and tokenizers in the cache, under a key of all that they depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ensue.cache import put, used
from ensue.cache_folders import cache_directory
from ensue.data.corpus.pair_counts import open_pair_counts, write_pair_counts
from ensue.data.corpus.token_file import TokenFile, check_tokens, write_tokens
from ensue.data.sources import TextSource
from ensue.errors import DataError, RunError
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer
from ensue.text.words import WordTokenizer

FORMAT = 1
"""Raise it when a tokenizer or the files change in a way that `to_json` does not show."""


class TextToIds(Protocol):
    """Text to ids: a tokenizer, or what makes more of its ids. `to_json` tells all that they depend on."""

    @property
    def vocabulary_size(self) -> int:
        """The ids are below this number."""

    @property
    def unknown_id(self) -> int | None:
        """The id of what is not known, if there is one."""

    def encode(self, text: str) -> NDArray[Any]:
        """The ids of a text, or of a part of it that ends at a boundary."""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""


def tokenize(source: TextSource, tokenizer: TextToIds, *, start: int = 0, stop: int | None = None) -> TokenFile:
    """The ids of the characters [start, stop) of `source`, from the cache if it has them.

    An entry that is damaged is made anew. Raises DataError if the text cannot be read, or if ids cannot be written.
    """
    name = _name(".ids", source, start, stop, tokenizer.to_json())
    if (tokens := _opened(cache_directory() / name)) is not None:
        return tokens

    def write(path: Path) -> None:
        pieces = ((tokenizer.encode(chunk), len(chunk)) for chunk in source.chunks(start, stop))
        write_tokens(path, pieces, vocabulary_size=tokenizer.vocabulary_size, unknown_id=tokenizer.unknown_id)

    return TokenFile.open(_put(name, write))


def counted_pairs(source: TextSource, tokenizer: WordTokenizer, *, window: int, across_lines: bool) -> NDArray[np.void]:
    """The counts of pairs of words in `source` (`pair_counts.py`), from the cache if it has them.

    Raises DataError if they cannot be written.
    """
    name = _name(".pairs", source, 0, None, [tokenizer.to_json(), window, across_lines])
    path = cache_directory() / name
    try:
        used(path)
        return open_pair_counts(path)
    except (DataError, OSError):
        pass
    tokens, line_end = tokenize(source, tokenizer), None if across_lines else tokenizer.start_id

    def write(path: Path) -> None:
        write_pair_counts(
            path, tokens, size=tokenizer.vocabulary_size, window=window, first_word=tokenizer.first_word_id,
            line_end=line_end,
        )  # fmt: skip

    return open_pair_counts(_put(name, write))


def trained_tokenizer(source: TextSource, *, stop: int | None, kind: str, **settings: Any) -> Tokenizer:
    """`train_tokenizer(kind, ...)` on the characters [0, stop) of `source`, from the cache if it has it."""
    name = _name(".json", source, 0, stop, [kind, settings])
    path = cache_directory() / name
    try:
        tokenizer = load_tokenizer(path)
    except RunError:  # missing or damaged
        tokenizer = train_tokenizer(kind, source.chunks(0, stop), **settings)
        _put(name, partial(save_tokenizer, tokenizer))
    else:
        used(path)
    return tokenizer


def _name(suffix: str, source: TextSource, start: int, stop: int | None, maker: Any) -> str:
    key = json.dumps([FORMAT, source.fingerprint(), source.encoding, start, stop, maker], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:32] + suffix


def _opened(path: Path) -> TokenFile | None:
    """The ids at `path`, or None if they are missing or damaged, or cannot be read."""
    try:
        check_tokens(path)
        used(path)
        return TokenFile.open(path)
    except (DataError, OSError):
        return None


def _put(name: str, write: Callable[[Path], object]) -> Path:
    try:
        return put(name, write)
    except OSError as error:
        raise DataError(
            f"nothing can be written, neither there nor in a temporary folder ({error.strerror or error})",
            cache_directory(),
        ) from error
