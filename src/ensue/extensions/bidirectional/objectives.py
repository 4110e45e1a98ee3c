"""The task of models that read in both directions, its two objectives, and their scores.

A bidirectional language model has the perplexity in each direction; a model of contexts (context2vec) the loss beside
words of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ensue.data.corpus.batches import Blocks, Segments, TokenBatch
from ensue.data.permutation import mix
from ensue.extensions.bidirectional.layers import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    BidirectionalModel,
    ContextModel,
    Direction,
    OneDirection,
)
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe, ContextOutput, NoOutput, SoftmaxOutput
from ensue.extensions.bidirectional.words import LINE_END, Ids, WordReader, WordText, word_vectors
from ensue.metrics.language import LanguageScores
from ensue.metrics.scores import ItemRows, ScoredItems, Scores, finite, mean, ratio
from ensue.models.modules import device_of, evaluating
from ensue.nn import SoftmaxHead, WordSample
from ensue.ranks import spread
from ensue.runs.reporter import score_table
from ensue.tasks.contract.task import Batch, Task, UnreadBatch, on_device, reset
from ensue.tasks.contract.token_scores import NatsOfParts
from ensue.tasks.texts.drawn_words import Noise, SampledWords, notes_on_sampling, sampled_words
from ensue.tasks.texts.scoring import default_parts, read
from ensue.types import Loss, State

Progress = Callable[[int], None]


@dataclass(frozen=True)
class TwoWayBatch(Batch):
    """The distinct words of a batch, and what each direction reads and predicts, (B, T)."""

    shared: ClassVar[frozenset[str]] = frozenset({"words", "sample"})
    rightward: Direction
    leftward: Direction
    words: Tensor
    sample: WordSample | None = None
    """The words that stand for the whole vocabulary."""
    noise: Tensor | None = None
    """(B, T, K): words of noise for each word, where negative samples train the model."""

    @property
    def count(self) -> int:
        """The number of predictions: of each word from either side, or from both sides together."""
        return self.rightward.targets.numel() * (2 if self.noise is None else 1)


class TwoWayRows:
    """From rows of a text to what both directions read."""

    def __init__(self, text: WordText, reader: WordReader) -> None:
        self.text, self.reader = text, reader

    def blocks(self, words: Ids, device: torch.device) -> TwoWayBatch:
        """Rows of words (B, T) that are read by themselves, as if a text began and ended there."""
        ends = np.full((len(words), 1), LINE_END)
        back = words[:, ::-1]
        return self._batch(
            np.hstack((ends, words[:, :-1])), words, np.hstack((ends, back[:, :-1])), back, device, first=True
        )

    def segments(self, ahead: TokenBatch, behind: TokenBatch, device: torch.device) -> TwoWayBatch:
        """A segment that goes on to the right, and one that goes on to the left."""
        rows = np.hstack((behind.inputs, behind.targets[:, -1:]))[:, ::-1]
        return self._batch(ahead.inputs, ahead.targets, rows[:, :-1], rows[:, 1:], device, first=ahead.first)

    def _batch(
        self, right: Ids, right_next: Ids, left: Ids, left_next: Ids, device: torch.device, *, first: bool
    ) -> TwoWayBatch:
        numbered, ids = self.reader.batch(self.text, right, left), self.text.ids
        return TwoWayBatch(
            Direction(on_device(numbered.rightward, device), on_device(ids[right_next], device)),
            Direction(on_device(numbered.leftward, device), on_device(ids[left_next], device)),
            on_device(numbered.words, device),
            first=first,
        )


class BidirectionalLanguageModeling(Task[BidirectionalModel, TwoWayBatch]):
    """Both directions on segments of a text with carried state, or on blocks of it; judged by nats per prediction."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self,
        batches: Segments | Blocks,
        rows: TwoWayRows,
        *,
        sampled: SampledWords | None = None,
        reset_state: float = 0.0,
        validate: Callable[[BidirectionalModel], Scores | None],
    ) -> None:
        self.batches, self.rows, self.sampled, self.reset_state = batches, rows, sampled, reset_state
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * batches.segment_length
        self._validate = validate

    def batch(self, step: int, device: torch.device) -> TwoWayBatch:
        batch = self.batches.batch(step)
        if isinstance(self.batches, Segments):
            # The other direction reads an epoch's segments from the last to the first.
            epoch, index = divmod(step, self.steps_per_epoch)
            mirrored = self.batches.batch(epoch * self.steps_per_epoch + self.steps_per_epoch - 1 - index)
            found = self.rows.segments(batch, mirrored, device)
        else:
            found = self.rows.blocks(batch.inputs, device)
        return replace(found, sample=None if self.sampled is None else self.sampled.draw(step, device))

    def initial_state(self, model: BidirectionalModel) -> State:
        return model.init_state(self.batches.batch_size) if isinstance(self.batches, Segments) else None

    def carried(self, model: BidirectionalModel, batch: UnreadBatch[TwoWayBatch], state: State) -> State:
        """The state for the next segment: None at the start of an epoch, and a new one in rows that are reset."""
        return None if batch.first else reset(state, self.reset_state, model.init_state)

    def loss(self, model: BidirectionalModel, batch: TwoWayBatch, state: State) -> tuple[Loss, State]:
        assert isinstance(model, BidirectionalLanguageModel)
        loss, after = model.loss(batch.words, batch.rightward, batch.leftward, state, sample=batch.sample)
        return loss, after if isinstance(self.batches, Segments) else None

    def validate(self, model: BidirectionalModel) -> Scores | None:
        return self._validate(model)


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
