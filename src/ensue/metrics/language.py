"""What a language model's surprisal at a text amounts to: perplexity, and bits per character."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LanguageScores:
    """The summed surprisal in nats of `tokens` predicted tokens, which stand for `characters` characters.

    `unknown` of the tokens are the unknown one: the model is not asked which it was, so their surprisal is flattering.
    Scores of parts add up to that of the whole. Without tokens (or characters) the means are NaN, in JSON null.
    """

    total_nats: float
    tokens: int
    characters: int
    unknown: int = 0

    def __add__(self, other: LanguageScores) -> LanguageScores:
        return LanguageScores(
            self.total_nats + other.total_nats,
            self.tokens + other.tokens,
            self.characters + other.characters,
            self.unknown + other.unknown,
        )

    @property
    def nats_per_token(self) -> float:
        return self.total_nats / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """`exp(nats_per_token)`; infinite where that leaves the floating-point numbers."""
        try:
            return math.exp(self.nats_per_token)
        except OverflowError:
            return math.inf

    @property
    def bits_per_character(self) -> float:
        """`total_nats / (ln 2 · characters)`, which compares across tokenizers."""
        return self.total_nats / (math.log(2) * self.characters) if self.characters else math.nan

    def as_json(self) -> dict[str, float | int | None]:
        """The keys of `evaluate --json`; null for what is not a finite number, since JSON has no word for it."""
        return {
            "nats_per_token": _finite(self.nats_per_token),
            "perplexity": _finite(self.perplexity),
            "bits_per_character": _finite(self.bits_per_character),
            "tokens": self.tokens,
            "characters": self.characters,
            "unknown": self.unknown,
        }

    def summary(self) -> str:
        """The scores in one line, for people."""
        return (
            f"{self.nats_per_token:.4f} nats per token, perplexity {self.perplexity:,.2f}, "
            f"{self.bits_per_character:.4f} bits per character"
        )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
