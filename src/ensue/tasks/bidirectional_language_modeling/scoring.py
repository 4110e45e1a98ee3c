"""How a bidirectional model is scored: perplexity in each direction, or the loss by words of noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.data.permutation import mix
from ensue.metrics.language import LanguageScores
from ensue.metrics.scores import Scores, finite, mean
from ensue.models.bidirectional import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    ContextModel,
    OneWay,
)
from ensue.models.modules import device_of, evaluating
from ensue.nn import SoftmaxHead
from ensue.ranks import spread
from ensue.tasks.bidirectional_language_modeling.reading import word_vectors
from ensue.tasks.bidirectional_language_modeling.task import TwoWayRows, with_noise
from ensue.tasks.bidirectional_language_modeling.words import LINE_END, Ids, WordReader, WordText
from ensue.tasks.texts.drawn_words import Noise
from ensue.tasks.texts.scoring import default_parts, read

FIXED_SEED = 15
"""The seed of the noise by which models are scored: the same for every model and every run."""
SCORED_WORDS = 4096

Progress = Callable[[int], None]


@dataclass(frozen=True)
class TwoWayScores(Scores):
    """The scores of a text that is read from left to right, and from right to left."""

    forward: LanguageScores
    backward: LanguageScores

    @property
    def both(self) -> LanguageScores:
        """The scores of all predictions of both directions."""
        return self.forward + self.backward

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`; the means are those over both directions."""
        return {
            "nats_per_token": finite(self.both.nats_per_token),
            "perplexity": finite(self.both.perplexity),
            "perplexity_forward": finite(self.forward.perplexity),
            "perplexity_backward": finite(self.backward.perplexity),
            "tokens": self.forward.tokens,
            "characters": self.forward.characters,
            "unknown": self.forward.unknown,
        }

    def summary(self) -> str:
        return (
            f"{self.both.nats_per_token:.4f} nats per token, perplexity {self.both.perplexity:,.2f} "
            f"(forward {self.forward.perplexity:,.2f}, backward {self.backward.perplexity:,.2f})"
        )


@dataclass(frozen=True)
class ContextScores(Scores):
    """The loss of a model of contexts in nats, summed over `tokens` words, each beside `negatives` words of noise."""

    total_nats: float
    tokens: int
    unknown: int
    negatives: int

    @property
    def noise_nats(self) -> float:
        """The mean loss of a word."""
        return mean(self.total_nats, self.tokens)

    def as_json(self) -> dict[str, Any]:
        return {
            "noise_nats": finite(self.noise_nats),
            "tokens": self.tokens,
            "unknown": self.unknown,
            "negatives": self.negatives,
        }

    def summary(self) -> str:
        return f"{self.noise_nats:.4f} nats per word beside {self.negatives} words of noise"


@torch.inference_mode()
def score_both_ways(
    model: BidirectionalLanguageModel,
    head: SoftmaxHead,
    text: WordText,
    reader: WordReader,
    *,
    progress: Progress | None = None,
    heard: Callable[[Ids, Tensor], object] | None = None,
) -> TwoWayScores:
    """The perplexity of a text in each direction, read as those of language models are (`tasks.texts.scoring`).

    `heard` is given the nats of some positions at a time, those of each direction.
    """
    with evaluating(model):
        vectors = word_vectors(model, reader, text.words)
        found = []
        for layers, boundary, tokens in (
            (model.rightward, TEXT_BEGIN, text.tokens),
            (model.leftward, TEXT_END, text.tokens.reversed()),
        ):
            table = vectors[FIRST_WORD:].clone()
            table[LINE_END] = vectors[boundary]
            way = OneWay(table, layers, head, torch.from_numpy(text.ids).to(table.device))
            places = heard if heard is None or tokens is text.tokens else from_the_end(heard, len(tokens))
            scores = read(way, tokens, start_id=LINE_END, progress=progress, heard=places)
            found.append(replace(scores, unknown=text.unknown))
    return TwoWayScores(*found)


def from_the_end(heard: Callable[[Ids, Tensor], object], size: int) -> Callable[[Ids, Tensor], object]:
    """The same for a text of `size` tokens that is read from its end."""
    return lambda positions, nats: heard(size - 1 - positions, nats)


@torch.inference_mode()
def score_contexts(
    model: ContextModel, text: WordText, reader: WordReader, noise: Noise, *,
    negatives: int, length: int, progress: Progress | None = None,
    heard: Callable[[float, int], object] | None = None,
) -> ContextScores:  # fmt: skip
    """The loss on a text in blocks of `length` words, with noise that is the same for every model. `heard` is given the
    nats of some words at a time, and their number.
    """
    rows = TwoWayRows(text, reader)

    def nats_of(block: tuple[int, Ids]) -> float:
        number, words = block
        batch = with_noise(rows.blocks(words, device_of(model)), noise, negatives, key=mix(FIXED_SEED, number))
        assert batch.noise is not None
        nats = float(model.loss(batch.words, batch.rightward, batch.leftward, batch.noise).total)
        if heard is not None:
            heard(nats, words.size)
        if progress is not None:
            progress(words.size)
        return nats

    with evaluating(model):
        total = sum(spread(nats_of, enumerate(_blocks(text, length))), 0.0)
    return ContextScores(total, len(text.tokens), text.unknown, negatives)


def _blocks(text: WordText, length: int) -> Iterator[Ids]:
    """The words of a text in rows of `length`, some rows at a time, and the rest as a row of its own."""
    size, rows = len(text.tokens), max(1, SCORED_WORDS // length)
    whole = size // length * length
    for start in range(0, whole, rows * length):
        yield text.tokens.read(start, min(start + rows * length, whole)).reshape(-1, length)
    if whole < size:
        yield text.tokens.read(whole, size)[None]


def describe_scoring(text_tokens: int, *, length: int | None) -> str:
    """A sentence that says how a text is scored: in blocks of `length` words, or by each direction."""
    if length is not None:
        return f"read once in blocks of {length:,} words, with words of noise that are the same for every model"
    return f"read once by each direction, state carried, in {default_parts(text_tokens)} parts with a warm-up each"


def noise_of(counts: Ids, power: float) -> Noise:
    """The words of noise for the counts of a vocabulary."""
    return Noise(np.power(counts.astype(np.float64), power))
