"""Symbols and their ids, and the choice of the most frequent symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class Vocabulary:
    """Distinct symbols, numbered from 0 in the given order: `symbols[id]` and `ids[symbol]`."""

    def __init__(self, symbols: Iterable[str]) -> None:
        self.symbols = tuple(symbols)
        self.ids = {symbol: id for id, symbol in enumerate(self.symbols)}
        assert len(self.ids) == len(self.symbols), "symbols must differ"

    @classmethod
    def from_json(cls, symbols: Any, *, first: tuple[str, ...]) -> Vocabulary:
        """A vocabulary from JSON. Raises ValueError unless it is a list of distinct strings, `first` before others."""
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("symbols must be a list of strings")
        if len(set(symbols)) < len(symbols):
            raise ValueError("a symbol occurs twice")
        if tuple(symbols[: len(first)]) != first:
            raise ValueError(f"the first symbols must be {', '.join(first)}")
        return cls(symbols)

    def __len__(self) -> int:
        return len(self.symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} symbols)"


def most_frequent(counts: Mapping[str, int], *, min_count: int, limit: int | None) -> list[str]:
    """At most `limit` symbols that occur at least `min_count` times, the most frequent first; ties in string order."""
    kept = (symbol for symbol, count in counts.items() if count >= min_count)
    ranked = sorted(kept, key=lambda symbol: (-counts[symbol], symbol))
    return ranked if limit is None else ranked[: max(limit, 0)]
