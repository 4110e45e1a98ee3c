"""Scores of a masked language model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ensue.metrics.language import finite


@dataclass(frozen=True)
class MaskedScores:
    """The total surprisal in nats of `masked` hidden tokens of a text of `tokens`, and how many were found first.

    `unknown` of the tokens are [UNK], which are never hidden. Of `pairs` of segments, the model was right about
    `pairs_right`. Scores of parts can be added.
    """

    total_nats: float = 0.0
    masked: int = 0
    right: int = 0
    tokens: int = 0
    unknown: int = 0
    pairs: int = 0
    pairs_right: int = 0

    def __add__(self, other: MaskedScores) -> MaskedScores:
        return MaskedScores(
            self.total_nats + other.total_nats,
            self.masked + other.masked,
            self.right + other.right,
            self.tokens + other.tokens,
            self.unknown + other.unknown,
            self.pairs + other.pairs,
            self.pairs_right + other.pairs_right,
        )

    @property
    def masked_nats(self) -> float:
        """The mean surprisal of a hidden token, in nats."""
        return self.total_nats / self.masked if self.masked else math.nan

    @property
    def perplexity(self) -> float:
        """`exp(masked_nats)`, of hidden tokens; infinite if that exceeds the floating-point numbers."""
        try:
            return math.exp(self.masked_nats)
        except OverflowError:
            return math.inf

    @property
    def accuracy(self) -> float:
        """The share of hidden tokens that were the most probable ones."""
        return self.right / self.masked if self.masked else math.nan

    def as_json(self) -> dict[str, float | int | None]:
        """The keys of `evaluate --json`; None for a number that is not finite, which JSON does not have."""
        pairs = {"next_sentence_accuracy": self.pairs_right / self.pairs} if self.pairs else {}
        return {
            "masked_nats": finite(self.masked_nats),
            "perplexity": finite(self.perplexity),
            "accuracy": finite(self.accuracy),
            **pairs,
            "masked": self.masked,
            "tokens": self.tokens,
            "unknown": self.unknown,
        }

    def summary(self) -> str:
        """The scores in one line, for people."""
        pairs = f", next sentence {self.pairs_right / self.pairs:.1%}" if self.pairs else ""
        return (
            f"{self.masked_nats:.4f} nats per masked token, perplexity {self.perplexity:,.2f}, "
            f"accuracy {self.accuracy:.1%}{pairs}"
        )
