"""Access to the `tokenizers` library: lazy import, checks that prevent its panics, and a cache of ids."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ensue.text.tokenizer import replace_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer


BYTES = np.arange(1, 256, dtype=np.int64)
"""All bytes except NUL, which ends a string in the double array."""
_TYPE, _MAP = "Precompiled", "precompiled_charsmap"


def check_character_maps(normalizer: Any) -> None:
    """Raise ValueError for a damaged character map in the normalizer of a tokenizer.json.

    A character map of SentencePiece (`Precompiled`) consists of a double-array trie over bytes (`darts-clone`, Yata
    2008) and the replacement strings that the values of the trie point to. The library does not check the map, and
    panics on an index out of range.
    """
    for encoded in _find_encoded_maps(normalizer):
        try:
            content = base64.b64decode(encoded, validate=True)
            size = int.from_bytes(content[:4], "little")
            units = np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64)
            strings = content[4 + size :]
            strings.decode()
            is_valid = 4 * len(units) == size > 0 and _is_in_range(units, strings)
        except (ValueError, TypeError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"the normalizer {_TYPE} has a damaged map of characters")


def _find_encoded_maps(normalizer: Any) -> Iterator[Any]:
    if isinstance(normalizer, dict):
        if normalizer.get("type") == _TYPE:
            yield normalizer.get(_MAP)
        normalizers = normalizer.get("normalizers")
        for inner in normalizers if isinstance(normalizers, list) else ():
            yield from _find_encoded_maps(inner)


def _is_in_range(units: NDArray[np.int64], strings: bytes) -> bool:
    """Return whether all nodes that are reachable from the root, and their values, are in range."""
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels, has_value = units & (1 << 31 | 0xFF), (units >> 8) & 1 == 1
    is_begin = np.append((np.frombuffer(strings, np.uint8) & 0xC0) != 0x80, True)
    visited = np.zeros(len(units), np.bool_)
    nodes = offsets[:1]
    while len(nodes):
        if (nodes | 0xFF).max() >= len(units):
            return False
        visited[nodes] = True
        children = nodes[:, None] ^ BYTES
        children = children[labels[children] == BYTES]
        nodes = np.unique(children ^ offsets[children])
        leaves = (children ^ offsets[children])[has_value[children]]
        if len(nodes) and nodes[-1] >= len(units):
            return False
        values = units[leaves] & 0x7FFFFFFF
        if len(values) and (values.max() > len(strings) or not is_begin[values].all()):
            return False
        nodes = nodes[~visited[nodes]]
    return True


MAX_CACHED_PIECES = 1 << 17
MAX_CACHED_CHARACTERS = 32
MAX_REPETITIONS = 1 << 12
"""The maximum number of copies of a word in one training text, which bounds memory."""
START = "[START]"
"""The key of the special token before a text, for tokenizers without `[CLS]`."""


class PieceIds:
    """A cache of the ids of pieces of text, such as words. A lookup is ten times faster than the library."""

    def __init__(self, library: LibraryTokenizer) -> None:
        self.library = library
        self._cached: dict[str, list[int]] = {}

    def ids(self, pieces: Sequence[str]) -> NDArray[np.uint32]:
        """Return the concatenated ids of the pieces, which are encoded separately."""
        cached = self._cached
        texts = list({piece for piece in pieces if piece not in cached})  # `- cached.keys()` would read all keys
        encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        new = {text: encoding.ids for text, encoding in zip(texts, encodings, strict=True)}
        ids = [id for piece in pieces for id in (new[piece] if piece in new else cached[piece])]
        short = {piece: ids for piece, ids in new.items() if len(piece) <= MAX_CACHED_CHARACTERS}
        if len(cached) + len(short) <= MAX_CACHED_PIECES:
            cached.update(short)
        else:
            self._cached = short
        return np.array(ids, np.uint32)


def repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Yield training texts for the library. The frequency of each word in the texts is its count in `words`."""
    for word, count in words.items():
        num_full, remainder = divmod(count, MAX_REPETITIONS)
        yield from [f"{word} " * MAX_REPETITIONS] * num_full
        yield f"{word} " * remainder


def library_tokenizer(content: Any) -> LibraryTokenizer:
    """Return the library's tokenizer from its JSON value. Raises ValueError for an invalid value."""
    check_character_maps(content.get("normalizer") if isinstance(content, dict) else None)
    with library_errors():
        tokenizer: LibraryTokenizer = import_library().Tokenizer.from_str(json.dumps(content))
    return tokenizer


class LibraryBacked:
    """A tokenizer that runs the library's tokenizer `library`."""

    library: LibraryTokenizer

    @property
    def tokenizer(self) -> Any:
        """The JSON value of the library's tokenizer."""
        return json.loads(self.library.to_str())

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the ids (N,) of a text, and the start and end of each token in characters, (N, 2)."""
        encoding: Any = self.library.encode(replace_surrogates(text), add_special_tokens=False)
        return np.array(encoding.ids, np.uint32), np.array(encoding.offsets, np.int64).reshape(-1, 2)


@contextmanager
def library_errors() -> Iterator[None]:
    """Raise ValueError, with a message of one line, for exceptions and panics of the library; hide its backtraces."""
    with TemporaryFile() as captured:
        if sys.stderr is not None:
            sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            captured.truncate(0)
            raise ValueError(" ".join(str(error).split())) from None
        finally:
            os.dup2(stderr, 2)
            captured.seek(0)
            os.write(stderr, captured.read())  # output of other threads
            os.close(stderr)


def special_ids(library: LibraryTokenizer, special: Mapping[str, str]) -> dict[str, int]:
    """Return the id of each special token by its key. Raises ValueError for a token that has no id."""
    ids = library.get_vocab()
    if missing := next((token for token in special.values() if token not in ids), None):
        raise ValueError(f"the vocabulary has no {missing}")
    return {key: ids[token] for key, token in special.items()}


def import_library() -> ModuleType:
    """Import the library at first use, because the import is slow."""
    # otherwise the library prints a warning if a process forks after tokenizing
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers  # noqa: PLC0415

    return tokenizers
