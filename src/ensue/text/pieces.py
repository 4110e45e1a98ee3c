"""The `tokenizers` library, imported at first use and kept from panics, and its ids of pieces of a text, remembered."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer


BYTES = np.arange(1, 256, dtype=np.int64)
_TYPE, _MAP = "Precompiled", "precompiled_charsmap"


def check_character_maps(normalizer: Any) -> None:
    """Raises ValueError for a map, in a normalizer of a tokenizer.json or in a sequence of them, that is none.

    A map of SentencePiece (`Precompiled`) is a double array, in which a text is looked up byte by byte, and the strings
    in which its values begin. The library trusts its numbers, and ends in a panic of Rust where one points outside.
    Source: `darts-clone` (Yata 2008), as sentencepiece writes it.
    """
    for encoded in _maps(normalizer):
        try:
            content = base64.b64decode(encoded, validate=True)
            size = int.from_bytes(content[:4], "little")
            units = np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64)
            strings = content[4 + size :]
            strings.decode()
            is_whole = 4 * len(units) == size > 0 and _values_fit(units, strings)
        except (ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise ValueError(f"the normalizer {_TYPE} has a damaged map of characters")


def _maps(normalizer: Any) -> Iterator[Any]:
    if isinstance(normalizer, dict):
        if normalizer.get("type") == _TYPE:
            yield normalizer.get(_MAP)
        inner = normalizer.get("normalizers")
        for one in inner if isinstance(inner, list) else ():
            yield from _maps(one)


def _values_fit(units: NDArray[np.int64], strings: bytes) -> bool:
    """Whether all that the first unit leads to is inside: each place that a byte may lead to, and each value."""
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels, has_value = units & (1 << 31 | 0xFF), (units >> 8) & 1 == 1
    is_begin = np.append((np.frombuffer(strings, np.uint8) & 0xC0) != 0x80, True)
    seen = np.zeros(len(units), np.bool_)
    nodes = offsets[:1]
    while len(nodes):
        if (nodes | 0xFF).max() >= len(units):
            return False
        seen[nodes] = True
        places = nodes[:, None] ^ BYTES
        places = places[labels[places] == BYTES]
        nodes = np.unique(places ^ offsets[places])
        valued = (places ^ offsets[places])[has_value[places]]
        if len(nodes) and nodes[-1] >= len(units):
            return False
        values = units[valued] & 0x7FFFFFFF
        if len(values) and (values.max() > len(strings) or not is_begin[values].all()):
            return False
        nodes = nodes[~seen[nodes]]
    return True


REMEMBERED_PIECES = 1 << 17
REMEMBERED_LENGTH = 32
START = "[START]"
"""The purpose of the special token that is read before a text, where no other one is."""


class PieceIds:
    """The ids of pieces of text. They are remembered, since a look-up is ten times faster than the library."""

    def __init__(self, library: LibraryTokenizer) -> None:
        self.library = library
        self._remembered: dict[str, list[int]] = {}

    def ids(self, pieces: Sequence[str]) -> NDArray[np.uint32]:
        """The ids of the pieces, one after another. Each piece is read by itself."""
        known = self._remembered
        new = self._encoded({piece for piece in pieces if piece not in known})  # `- known.keys()` reads all keys
        ids = [id for piece in pieces for id in (new[piece] if piece in new else known[piece])]
        short = {piece: ids for piece, ids in new.items() if len(piece) <= REMEMBERED_LENGTH}
        if len(known) + len(short) <= REMEMBERED_PIECES:
            known.update(short)
        else:
            self._remembered = short
        return np.array(ids, np.uint32)

    def _encoded(self, pieces: Iterable[str]) -> dict[str, list[int]]:
        texts = list(pieces)
        encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return {text: encoding.ids for text, encoding in zip(texts, encodings, strict=True)}


def with_offsets(library: LibraryTokenizer, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The ids of `text`, and where each begins and ends in it, (N, 2), in characters."""
    encoding: Any = library.encode(text, add_special_tokens=False)
    return np.array(encoding.ids, np.uint32), np.array(encoding.offsets, np.int64).reshape(-1, 2)


def library_tokenizer(content: Any) -> LibraryTokenizer:
    """The library's tokenizer of this JSON value. Raises ValueError for what is none."""
    check_character_maps(content.get("normalizer") if isinstance(content, dict) else None)
    with library_errors():
        found: LibraryTokenizer = import_library().Tokenizer.from_str(json.dumps(content))
    return found


def library_form(library: LibraryTokenizer) -> dict[str, Any]:
    """The JSON value of a library's tokenizer."""
    form: dict[str, Any] = json.loads(library.to_str())
    return form


@contextmanager
def library_errors() -> Iterator[None]:
    """Raises ValueError in one line for the library's Exceptions and panics of Rust, whose backtrace is not shown."""
    with TemporaryFile() as said:
        if sys.stderr is not None:
            sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            said.truncate(0)
            raise ValueError(" ".join(str(error).split())) from None
        finally:
            os.dup2(stderr, 2)
            said.seek(0)
            os.write(stderr, said.read())  # of others, meanwhile
            os.close(stderr)


def special_ids(library: LibraryTokenizer, special: Mapping[str, str]) -> dict[str, int]:
    """The id of each special token, by what it is for. Raises ValueError for one that is not in the vocabulary."""
    known = library.get_vocab()
    if missing := next((token for token in special.values() if token not in known), None):
        raise ValueError(f"the vocabulary has no {missing}")
    return {use: known[token] for use, token in special.items()}


def import_library() -> ModuleType:
    """The library. It is slow to import, and many programs do without it."""
    # without this, the library warns a process that forks after tokenizing
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers  # noqa: PLC0415

    return tokenizers
