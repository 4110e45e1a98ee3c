"""The `tokenizers` library, imported at first use, and the ids that it gives to pieces of a text, remembered."""

from __future__ import annotations

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

from ensue.text.character_maps import check_character_maps

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

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
    """Raises ValueError in one line for what the library raises: plain Exceptions, and panics of Rust, which are no
    Exceptions and write a backtrace to stderr; it is not shown.
    """
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
