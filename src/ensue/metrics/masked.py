"""Scores of a masked language model."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.metrics.scores import SummedScores, finite, mean, perplexity


@dataclass(frozen=True)
class MaskedScores(SummedScores):
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

    @property
    def masked_nats(self) -> float:
        """The mean surprisal of a hidden token, in nats."""
        return mean(self.total_nats, self.masked)

    @property
    def perplexity(self) -> float:
        """`exp(masked_nats)`, of hidden tokens; infinite if that exceeds the floating-point numbers."""
        return perplexity(self.masked_nats)

    @property
    def accuracy(self) -> float:
        """The share of hidden tokens that were the most probable ones."""
        return mean(self.right, self.masked)

    def as_json(self) -> dict[str, float | int | None]:
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
        pairs = f", next sentence {self.pairs_right / self.pairs:.1%}" if self.pairs else ""
        return (
            f"{self.masked_nats:.4f} nats per masked token, perplexity {self.perplexity:,.2f}, "
            f"accuracy {self.accuracy:.1%}{pairs}"
        )
