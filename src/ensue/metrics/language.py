"""Scores of a language model from the surprisal of a text: perplexity and bits per character."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ensue.metrics.scores import SummedScores, finite, mean, perplexity


@dataclass(frozen=True)
class LanguageScores(SummedScores):
    """The total surprisal in nats of `tokens` predicted tokens, which have `characters` characters.

    `unknown` of the tokens are `<unk>`. The model does not predict which symbol that was, so their surprisal is too
    low. Scores of parts can be added. Without tokens (or characters) the means are NaN, in JSON null.
    """

    total_nats: float
    tokens: int
    characters: int
    unknown: int = 0

    @property
    def nats_per_token(self) -> float:
        """The mean surprisal of a token, in nats."""
        return mean(self.total_nats, self.tokens)

    @property
    def perplexity(self) -> float:
        """`exp(nats_per_token)`; infinite if that exceeds the floating-point numbers."""
        return perplexity(self.nats_per_token)

    @property
    def bits_per_character(self) -> float:
        """`total_nats / (ln 2 · characters)`, which can be compared across tokenizers."""
        return mean(self.total_nats, math.log(2) * self.characters)

    def as_json(self) -> dict[str, float | int | None]:
        return {
            "nats_per_token": finite(self.nats_per_token),
            "perplexity": finite(self.perplexity),
            "bits_per_character": finite(self.bits_per_character),
            "tokens": self.tokens,
            "characters": self.characters,
            "unknown": self.unknown,
        }

    def summary(self) -> str:
        return (
            f"{self.nats_per_token:.4f} nats per token, perplexity {self.perplexity:,.2f}, "
            f"{self.bits_per_character:.4f} bits per character"
        )
