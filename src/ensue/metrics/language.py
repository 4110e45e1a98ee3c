"""Scores of models from surprisal: of all tokens of a text, or of those that are hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ensue.metrics.scores import SummedScores, card_columns, mean, perplexity


@dataclass(frozen=True)
class LanguageScores(SummedScores):
    """The total surprisal in nats of `tokens` predicted tokens, which have `characters` characters.

    `unknown` of the tokens are `<unk>`. The model does not predict which symbol that was, so their surprisal is too
    low. Scores of parts can be added. Without tokens (or characters) the means are NaN, in JSON null.
    """

    in_json = ("nats_per_token", "perplexity", "bits_per_character", "tokens", "characters", "unknown")
    compared = ("bits_per_character",)
    on_card = card_columns(".4f", "nats_per_token", "perplexity", "bits_per_character")
    on_card |= card_columns(",", "tokens", "unknown")
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

    def summary(self) -> str:
        return (
            f"{self.nats_per_token:.4f} nats per token, perplexity {self.perplexity:,.2f}, "
            f"{self.bits_per_character:.4f} bits per character"
        )


@dataclass(frozen=True)
class MaskedScores(SummedScores):
    """The total surprisal in nats of `masked` hidden tokens of a text of `tokens`, and how many were found first.

    `unknown` of the tokens are [UNK], which are never hidden. Of `pairs` of segments, the model was right about
    `pairs_right`. Scores of parts can be added.
    """

    in_json = ("masked_nats", "perplexity", "accuracy", "next_sentence_accuracy", "masked", "tokens", "unknown")
    compared = ("masked_nats", "accuracy")
    on_card = card_columns(".4f", masked_nats="nats per masked token") | card_columns(".2f", "perplexity")
    on_card |= card_columns(".4f", "accuracy") | card_columns(",", masked="masked tokens")
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

    @property
    def next_sentence_accuracy(self) -> float:
        """The share of pairs of segments of which the model was right."""
        return mean(self.pairs_right, self.pairs)

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`; without pairs none for them."""
        return {key: x for key, x in super().as_json().items() if self.pairs or key != "next_sentence_accuracy"}

    def summary(self) -> str:
        pairs = f", next sentence {self.next_sentence_accuracy:.1%}" if self.pairs else ""
        return (
            f"{self.masked_nats:.4f} nats per masked token, perplexity {self.perplexity:,.2f}, "
            f"accuracy {self.accuracy:.1%}{pairs}"
        )
