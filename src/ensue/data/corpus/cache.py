"""Cache of token ids and trained tokenizers. The key is a hash of the text and all settings."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from ensue.cache import cache_directory, json_digest, mark_used, write_cached
from ensue.data.mapped_file import TokenFile, check_tokens, write_tokens
from ensue.data.sources import TextSource
from ensue.errors import DataError, RunError
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer

FORMAT_VERSION = 1
"""The version of the cache. It increases if tokenizers or files change although `to_json` returns the same."""


class TextToIds(Protocol):
    """A function from text to ids: a tokenizer or a wrapper of a tokenizer."""

    @property
    def vocabulary_size(self) -> int:
        """The number of ids."""

    @property
    def unknown_id(self) -> int | None:
        """The id of unknown symbols; None if all symbols are known."""

    def encode(self, text: str) -> NDArray[Any]:
        """Return the ids of a chunk of text that ends at a boundary."""

    def to_json(self) -> dict[str, Any]:
        """Return all settings that determine the ids, as JSON values."""


def tokenize(source: TextSource, tokenizer: TextToIds, *, start: int = 0, stop: int | None = None) -> TokenFile:
    """Return the ids of the characters [start, stop) of `source`, from the cache if possible.

    A damaged entry of the cache is replaced. Raises DataError if the text cannot be read or the ids cannot be written.
    """
    name = entry_name(".ids", source, start, stop, tokenizer.to_json())
    path = cache_directory() / name
    with suppress(DataError, OSError):
        check_tokens(path)
        mark_used(path)
        return TokenFile.open(path)

    def write(path: Path) -> None:
        encoded = ((tokenizer.encode(chunk), len(chunk)) for chunk in source.chunks(start, stop))
        write_tokens(path, encoded, vocabulary_size=tokenizer.vocabulary_size, unknown_id=tokenizer.unknown_id)

    return TokenFile.open(write_cached(name, write))


def load_or_train_tokenizer(
    source: TextSource, *, stop: int | None, kind: str, base: Tokenizer | None = None, **settings: Any
) -> Tokenizer:
    """Return a tokenizer trained on the characters [0, stop) of `source`, from the cache if possible.

    `settings` and `base` are arguments of `train_tokenizer`.
    """
    name = entry_name(".json", source, 0, stop, [kind, settings, *([] if base is None else [base.to_json()])])
    path = cache_directory() / name
    try:
        tokenizer = load_tokenizer(path)
    except RunError:  # missing or damaged
        tokenizer = train_tokenizer(kind, source.chunks(0, stop), base=base, **settings)
        write_cached(name, partial(save_tokenizer, tokenizer))
    else:
        mark_used(path)
    return tokenizer


def entry_name(suffix: str, source: TextSource, start: int, stop: int | None, settings: Any) -> str:
    """Return the name of a cache entry, which is a hash of the text and of the `settings`, a JSON value."""
    return json_digest([FORMAT_VERSION, source.fingerprint(), source.encoding, start, stop, settings]) + suffix
