"""Symbols and their ids, and the choice of the most frequent symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ensue.stored import read


class Vocabulary:
    """Distinct symbols, numbered from 0 in the given order: `symbols[id]` and `ids[symbol]`."""

    def __init__(self, symbols: Iterable[str], *, first: tuple[str, ...] = ()) -> None:
        """Raises ValueError for a symbol that occurs twice, or unless the first symbols are these."""
        self.symbols = tuple(symbols)
        self.ids = {symbol: id for id, symbol in enumerate(self.symbols)}
        if len(self.ids) < len(self.symbols):
            raise ValueError("a symbol occurs twice")
        if self.symbols[: len(first)] != first:
            raise ValueError(f"the first symbols must be {', '.join(first)}")

    def to_json(self) -> list[str]:
        """The symbols."""
        return list(self.symbols)

    @classmethod
    def from_json(cls, symbols: Any) -> Vocabulary:
        """The inverse of `to_json`. Raises ValueError for other values."""
        return cls(read(list[str], symbols))

    def __len__(self) -> int:
        return len(self.symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} symbols)"


def most_frequent(counts: Mapping[str, int], *, min_count: int, limit: int | None) -> list[str]:
    """At most `limit` symbols that occur at least `min_count` times, the most frequent first; ties in string order."""
    kept = (symbol for symbol, count in counts.items() if count >= min_count)
    ranked = sorted(kept, key=lambda symbol: (-counts[symbol], symbol))
    return ranked if limit is None else ranked[: max(limit, 0)]
