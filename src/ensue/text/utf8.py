"""The 256 bytes as a vocabulary, and the decoder for bytes and byte-level subwords."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.text.tokenizer import Decoder, Tokenizer

_SURROGATE = re.compile("[\ud800-\udfff]")


class ByteTokenizer(Tokenizer):
    """Every byte of the UTF-8 text is its own id; nothing is unknown, and there is nothing to train."""

    kind = "bytes"
    vocabulary_size = 256
    start_id = ord("\n")
    unknown_id = None

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def decoder(self) -> Decoder:
        return Utf8Decoder([bytes([byte]) for byte in range(256)])

    def symbol(self, id: int) -> str:
        return shown(bytes([id]))

    def _ids(self, text: str) -> NDArray[np.uint32]:
        return np.frombuffer(without_surrogates(text).encode(), np.uint8).astype(np.uint32)


class Utf8Decoder(Decoder):
    """Decodes ids that stand for byte strings. Bytes that are not UTF-8 become U+FFFD."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, id: int) -> str:
        return self._decoder.decode(self._pieces[id])

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


def without_surrogates(text: str) -> str:
    """`text` with U+FFFD for every lone surrogate, which UTF-8 cannot express."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def shown(piece: bytes) -> str:
    """The text of a token's bytes; a byte of an incomplete character is shown as `\\xe9`."""
    return piece.decode("utf-8", "backslashreplace")
