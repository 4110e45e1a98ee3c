"""Vocabularies of symbols with ids, and the selection of the most frequent symbols."""

from collections.abc import Iterable, Mapping
from typing import Any

from ensue.stored import read


class Vocabulary:
    """A list of distinct symbols, numbered from 0: `symbols[id]` is a symbol, and `ids[symbol]` is an id."""

    def __init__(self, symbols: Iterable[str], *, first: tuple[str, ...] = ()) -> None:
        """Raise ValueError if a symbol occurs twice, or if `symbols` does not begin with `first`."""
        self.symbols = tuple(symbols)
        self.ids = {symbol: id for id, symbol in enumerate(self.symbols)}
        if len(self.ids) < len(self.symbols):
            raise ValueError("a symbol occurs twice")
        if self.symbols[: len(first)] != first:
            raise ValueError(f"the first symbols must be {', '.join(first)}")

    def to_json(self) -> list[str]:
        """Return the vocabulary as JSON values."""
        return list(self.symbols)

    @classmethod
    def from_json(cls, symbols: Any) -> "Vocabulary":
        """Return the vocabulary from a result of `to_json`. Raises ValueError for other values."""
        return cls(read(list[str], symbols))

    def __len__(self) -> int:
        return len(self.symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} symbols)"


def most_frequent(counts: Mapping[str, int], *, min_count: int, limit: int | None) -> list[str]:
    """Return at most `limit` symbols with a count of at least `min_count`, sorted by frequency, then by code points."""
    frequent = (symbol for symbol, count in counts.items() if count >= min_count)
    return sorted(frequent, key=lambda symbol: (-counts[symbol], symbol))[: None if limit is None else max(limit, 0)]
