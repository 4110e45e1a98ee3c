"""Scores of sequences of symbols: how many are right as a whole, the edit rate, and the surprisal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ensue.errors import EnsueError
from ensue.metrics.generation import edit_distance
from ensue.metrics.scores import ItemRows, ScoredItems, Scores, of_sums, ratio


class JudgedSymbols(NamedTuple):
    """The symbols that are right, those that the model says, and the surprisal of the right ones, the stop included."""

    right: tuple[str, ...]
    said: tuple[str, ...]
    nats: float


@dataclass(frozen=True)
class SymbolScores(Scores):
    """Scores of sequences of symbols.

    `exact_match` and `edit_rate` are in percent: the share of sequences that are right as a whole, and insertions,
    deletions and substitutions for each right symbol. `nats_per_symbol` is the mean surprisal of right symbols, stops
    included, without those that the model does not have.
    """

    exact_match: float
    edit_rate: float
    nats_per_symbol: float
    symbols: int
    examples: int

    def summary(self) -> str:
        return (
            f"exact match {self.exact_match:.2f} %, edit rate {self.edit_rate:.2f} %, {self.nats_per_symbol:.4f} nats"
        )


def symbol_items(answers: Iterable[JudgedSymbols], unit: str) -> ScoredItems:
    """The scores by their items, for a test of differences."""
    rows = ItemRows()
    for right, said, nats in answers:
        rows.append((right == said, 1, edit_distance(said, right), len(right), nats, len(right) + 1))
    return rows.scored(unit, {
        "exact_match": of_sums(lambda sums: 100 * sums[:, 0] / sums[:, 1]),
        "edit_rate": of_sums(lambda sums: 100 * sums[:, 2] / sums[:, 3].clip(1)),
        "nats_per_symbol": ratio(4, 5),
    })  # fmt: skip


def score_symbols(answers: Iterable[JudgedSymbols]) -> SymbolScores:
    """The scores of all. Raises EnsueError if there are none."""
    items = symbol_items(answers, "series")
    if not items.size:
        raise EnsueError("there is nothing to score: no labeled series")
    symbols = int(items.rows[:, 3].sum())
    return SymbolScores(**items.whole(), symbols=symbols, examples=items.size)
