"""Ids and tokenizers that were made once and are kept, under a key of all they depend on. Deleting it loses nothing."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ensue.data.sources import TextSource
from ensue.data.token_file import TokenFile, check_tokens, write_tokens
from ensue.errors import DataError, RunError
from ensue.places import cache_directory
from ensue.text.tokenizers import Tokenizer, load_tokenizer, save_tokenizer, train_tokenizer

FORMAT = 1
"""To be raised when a tokenizer or the files change in a way that `to_json` does not show."""
ABANDONED_SECONDS = 24 * 3600


def tokenize(source: TextSource, tokenizer: Tokenizer, *, start: int = 0, stop: int | None = None) -> TokenFile:
    """The ids of the characters [start, stop) of `source`, from the cache if it has them.

    An entry that is damaged is made anew. DataError if the text cannot be read or the cache not be written.
    """
    path = _entry(".ids", source, start, stop, tokenizer.to_json())
    if (tokens := _opened(path)) is not None:
        return tokens
    pieces = ((tokenizer.encode(chunk), len(chunk)) for chunk in source.chunks(start, stop))
    with written_beside(path) as partial:
        write_tokens(partial, pieces, vocabulary_size=tokenizer.vocabulary_size, unknown_id=tokenizer.unknown_id)
    return TokenFile.open(path)


def trained_tokenizer(source: TextSource, *, stop: int | None, kind: str, **settings: Any) -> Tokenizer:
    """`train_tokenizer(kind, ...)` on the characters [0, stop) of `source`, from the cache if it has it."""
    path = _entry(".json", source, 0, stop, [kind, settings])
    try:
        return load_tokenizer(path)
    except RunError:  # missing or damaged
        tokenizer = train_tokenizer(kind, source.chunks(0, stop), **settings)
        with written_beside(path) as partial:
            save_tokenizer(tokenizer, partial)
        return tokenizer


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A new name beside `path` to write to, renamed into place at the end; nothing is left if that fails.

    DataError if the file system refuses (full, read-only, ...).
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise _unusable(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed left half-written."""
    for partial in folder.glob("*.partial"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
                partial.unlink()


def _entry(suffix: str, source: TextSource, start: int, stop: int | None, maker: Any) -> Path:
    key = json.dumps([FORMAT, source.fingerprint(), source.encoding, start, stop, maker], sort_keys=True)
    return cache_directory() / (hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)


def _opened(path: Path) -> TokenFile | None:
    """The ids at `path`, or None if they are missing or damaged."""
    try:
        check_tokens(path)
        return TokenFile.open(path)
    except (DataError, FileNotFoundError):
        return None
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> DataError:
    reason = error.strerror or str(error)
    return DataError(f"the cache cannot be used ({reason}); ENSUE_CACHE names another folder", path.parent)
