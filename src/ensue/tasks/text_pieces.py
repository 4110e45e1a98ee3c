"""A text in pieces, each an item of its score, for models of any tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.text.boundaries import last_boundary

PIECE_CHARACTERS = 400
BLOCK_TOKENS = 64


def pieces(chunks: Iterable[str]) -> Iterator[str]:
    """A text in pieces of about 400 characters, cut where no tokenizer makes a token across. They depend on the text
    alone, so they are the same for every model.
    """
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            width = PIECE_CHARACTERS
            while (cut := last_boundary(chunk[start : start + width])) is None and start + width < len(chunk):
                width *= 4
            end = len(chunk) if cut is None or start + width >= len(chunk) else start + cut
            yield chunk[start:end]
            start = end


class NatsOfParts:
    """Adds up the surprisals of a text by its parts, which end at `ends`."""

    def __init__(self, ends: NDArray[np.int64]) -> None:
        self.ends, self.totals = ends, np.zeros(len(ends))

    @classmethod
    def of_blocks(cls, tokens: int) -> NatsOfParts:
        """The parts are blocks of 64 tokens, and the rest."""
        return cls(np.minimum(np.arange(BLOCK_TOKENS, tokens + BLOCK_TOKENS, BLOCK_TOKENS), tokens))

    def __call__(self, positions: NDArray[np.int64], nats: Tensor) -> None:
        parts = np.searchsorted(self.ends, positions, side="right")
        self.totals += np.bincount(parts, nats.double().cpu().numpy(), len(self.ends))

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The number of tokens of each part."""
        return np.diff(self.ends, prepend=0)


def counted(source: Iterable[str], encode: Callable[[str], Any]) -> NDArray[np.int64]:
    """The tokens and the characters (N, 2) of each piece of a text."""
    return np.array([(len(encode(piece)), len(piece)) for piece in pieces(source)], np.int64).reshape(-1, 2)
