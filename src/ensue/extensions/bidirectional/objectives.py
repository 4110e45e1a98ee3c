"""The two objectives of models that read in both directions, and their scores.

A bidirectional language model has the perplexity in each direction; a model of contexts (context2vec) the loss beside
words of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.permutation import mix
from ensue.extensions.bidirectional.layers import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    BidirectionalModel,
    ContextModel,
    OneDirection,
)
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.extensions.bidirectional.task import BidirectionalLanguageModeling, TwoWayBatch, TwoWayRows
from ensue.extensions.bidirectional.words import LINE_END, Ids, WordReader, WordText, word_vectors
from ensue.metrics.language import LanguageScores
from ensue.metrics.scores import ItemRows, ScoredItems, Scores, finite, mean, ratio
from ensue.models.modules import device_of, evaluating
from ensue.models.word_specification import ContextOutput, NoOutput, SoftmaxOutput
from ensue.nn import SoftmaxHead
from ensue.ranks import spread
from ensue.runs.reporter import score_table
from ensue.tasks.contract.task import on_device
from ensue.tasks.contract.token_scores import NatsOfParts
from ensue.tasks.texts.drawn_words import Noise, notes_on_sampling, sampled_words
from ensue.tasks.texts.scoring import default_parts, read
from ensue.types import Loss, State

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


@torch.inference_mode()
def score_both_ways(
    model: BidirectionalLanguageModel,
    head: SoftmaxHead,
    text: WordText,
    reader: WordReader,
    *,
    progress: Progress | None = None,
    collect: Callable[[Ids, Tensor], object] | None = None,
) -> TwoWayScores:
    """The perplexity of a text in each direction, read as those of language models are (`tasks.texts.scoring`).

    `collect` is given the nats of some positions at a time, those of each direction.
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
            way = OneDirection(table, layers, head, torch.from_numpy(text.ids).to(table.device))
            places = collect if collect is None or tokens is text.tokens else from_the_end(collect, len(tokens))
            scores = read(way, tokens, start_id=LINE_END, progress=progress, collect=places)
            found.append(replace(scores, unknown=text.unknown))
    return TwoWayScores(*found)


def from_the_end(collect: Callable[[Ids, Tensor], object], size: int) -> Callable[[Ids, Tensor], object]:
    """The function `collect` for a text of `size` tokens that is read from its end."""
    return lambda positions, nats: collect(size - 1 - positions, nats)


class Perplexity:
    """The objective of a bidirectional language model: each word, from either side."""

    def __init__(self, head: SoftmaxOutput | NoOutput) -> None:
        self.head = head

    def task(
        self, batches: Segments | Blocks, rows: TwoWayRows, counts: Ids, **others: Any
    ) -> BidirectionalLanguageModeling:
        """The task, for the counts of the words in the vocabulary."""
        assert isinstance(self.head, SoftmaxOutput)
        sampled = sampled_words(self.head, counts, batches.seed)
        return BidirectionalLanguageModeling(batches, rows, sampled=sampled, **others)

    def notes(self, vocabulary_size: int) -> list[str]:
        """Remarks on the head."""
        return notes_on_sampling(self.head, vocabulary_size) if isinstance(self.head, SoftmaxOutput) else []

    def score(self, model: Any, text: WordText, reader: WordReader, **told: Any) -> TwoWayScores:
        """The scores of a text; see `score_both_ways`."""
        return score_both_ways(model, model.head, text, reader, **told)

    def items(self, model: Any, text: WordText, reader: WordReader) -> ScoredItems:
        """The nats per token, whose items are blocks of the text."""
        nats = NatsOfParts.of_blocks(len(text.tokens))
        self.score(model, text, reader, collect=nats)
        return ItemRows(zip(nats.totals, 2 * nats.tokens, strict=True)).scored(
            "blocks", {"nats_per_token": ratio(0, 1)}
        )

    def protocol(self, tokens: int) -> str:
        """A sentence that says how a text of so many tokens is scored."""
        return f"read once by each direction, state carried, in {default_parts(tokens)} parts with a warm-up each"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str] | None:
        """The table of scores on the card; None for the one of all tasks."""
        sizes = {"tokens": ("tokens", ","), "unknown": ("unknown", ",")}
        titles = {"perplexity": "perplexity", "perplexity_forward": "forward", "perplexity_backward": "backward"}
        shown = {key: (title, ".2f") for key, title in titles.items()}
        return score_table(scores, {"nats_per_token": ("nats per token", ".4f"), **shown, **sizes}, "text")


FIXED_SEED = 15
"""The seed of the noise by which models are scored: the same for every model and every run."""
SCORED_WORDS = 4096


@dataclass(frozen=True)
class ContextScores(Scores):
    """The loss of a model of contexts in nats, summed over `tokens` words, each beside `negatives` words of noise."""

    in_json = ("noise_nats", "tokens", "unknown", "negatives")
    total_nats: float
    tokens: int
    unknown: int
    negatives: int

    @property
    def noise_nats(self) -> float:
        """The mean loss of a word."""
        return mean(self.total_nats, self.tokens)

    def summary(self) -> str:
        return f"{self.noise_nats:.4f} nats per word beside {self.negatives} words of noise"


class ContextModeling(BidirectionalLanguageModeling):
    """The words of blocks from both of their sides, by negative samples; judged by the loss of a word."""

    judged_by = "noise_nats"

    def __init__(
        self, batches: Segments | Blocks, rows: TwoWayRows, noise: Noise, negatives: int, **others: Any
    ) -> None:
        super().__init__(batches, rows, **others)
        self.noise, self.negatives = noise, negatives

    def batch(self, step: int, device: torch.device) -> TwoWayBatch:
        return with_noise(super().batch(step, device), self.noise, self.negatives, key=mix(self.batches.seed, step))

    def loss(self, model: BidirectionalModel, batch: TwoWayBatch, state: State) -> tuple[Loss, State]:
        assert isinstance(model, ContextModel)
        assert batch.noise is not None
        return model.loss(batch.words, batch.rightward, batch.leftward, batch.noise), None


class ContextObjective:
    """The objective of a model of contexts: to tell each word from words of noise, by what stands beside it."""

    def __init__(self, head: ContextOutput, length: int) -> None:
        self.head, self.length = head, length

    def task(self, batches: Segments | Blocks, rows: TwoWayRows, counts: Ids, **others: Any) -> ContextModeling:
        """The task, for the counts of the words in the vocabulary."""
        return ContextModeling(batches, rows, noise_of(counts, self.head.noise_power), self.head.negatives, **others)

    def notes(self, vocabulary_size: int) -> list[str]:
        """No remarks."""
        return []

    def score(self, model: Any, text: WordText, reader: WordReader, **told: Any) -> ContextScores:
        """The scores of a text; see `score_contexts`."""
        noise = noise_of(model.counts.cpu().numpy(), self.head.noise_power)
        negatives = self.head.negatives
        return score_contexts(model, text, reader, noise, negatives=negatives, length=self.length, **told)

    def items(self, model: Any, text: WordText, reader: WordReader) -> ScoredItems:
        """The loss of a word, whose items are groups of blocks."""
        rows = ItemRows()
        self.score(model, text, reader, collect=lambda nats, words: rows.append((nats, words)))
        return rows.scored("groups of blocks", {"noise_nats": ratio(0, 1)})

    def protocol(self, tokens: int) -> str:
        """A sentence that says how a text is scored."""
        return f"read once in blocks of {self.length:,} words, with words of noise that are the same for every model"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str] | None:
        """The table of scores on the card; None for the one of all tasks."""
        return None


@torch.inference_mode()
def score_contexts(
    model: ContextModel, text: WordText, reader: WordReader, noise: Noise, *,
    negatives: int, length: int, progress: Progress | None = None,
    collect: Callable[[float, int], object] | None = None,
) -> ContextScores:  # fmt: skip
    """The loss on a text in blocks of `length` words, with noise that is the same for every model. `collect` is given
    the nats of some words at a time, and their number.
    """
    rows = TwoWayRows(text, reader)

    def nats_of(block: tuple[int, Ids]) -> float:
        number, words = block
        batch = with_noise(rows.blocks(words, device_of(model)), noise, negatives, key=mix(FIXED_SEED, number))
        assert batch.noise is not None
        nats = float(model.loss(batch.words, batch.rightward, batch.leftward, batch.noise).total)
        if collect is not None:
            collect(nats, words.size)
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


def with_noise(batch: TwoWayBatch, noise: Noise, negatives: int, *, key: int) -> TwoWayBatch:
    """The batch with its words of noise, a function of `key`."""
    shape = (*batch.rightward.targets.shape, negatives)
    drawn = noise.draw(key, np.arange(int(np.prod(shape)))).astype(np.int64).reshape(shape)
    return replace(batch, noise=on_device(drawn, batch.words.device))


def noise_of(counts: Ids, power: float) -> Noise:
    """The words of noise for the counts of a vocabulary."""
    return Noise(np.power(counts.astype(np.float64), power))


def objective_of(recipe: BidirectionalRecipe) -> Perplexity | ContextObjective:
    """The objective of a model of this recipe."""
    head = recipe.head
    return ContextObjective(head, recipe.train.segment_length) if isinstance(head, ContextOutput) else Perplexity(head)
