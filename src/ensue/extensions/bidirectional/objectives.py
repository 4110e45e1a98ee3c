"""The training of bidirectional models: tasks, job, scores, and the objectives of language models and context2vec."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.batches import Blocks, Segments, TokenBatch
from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import mix
from ensue.data.sources import TextSource
from ensue.errors import RecipeError
from ensue.extensions.bidirectional.layers import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    BidirectionalModel,
    ContextModel,
    Direction,
    DirectionalLanguageModel,
)
from ensue.extensions.bidirectional.model import BidirectionalParts
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe, ContextOutput, NoOutput, SoftmaxOutput
from ensue.extensions.bidirectional.words import LINE_END, Ids, WordReader, WordText, train_word_tokenizer, word_vectors
from ensue.extensions.word_vectors.examples import Noise
from ensue.metrics.scores import ItemRows, LanguageScores, ScoredItems, Scores, finite, quotient, ratio_or_nan
from ensue.models.modules import device_of, evaluating
from ensue.nn import WordSample
from ensue.ranks import sharded_map
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.tasks.contract.task import Batch, LazyBatch, Task, on_device, reset
from ensue.tasks.contract.token_scores import PIECE_TOKENS, PieceNats
from ensue.tasks.texts import corpus
from ensue.tasks.texts.scoring import default_parts, score_text
from ensue.text.tokenizer import WordTokenizer
from ensue.types import Loss, State

Progress = Callable[[int], None]


@dataclass(frozen=True)
class BidirectionalBatch(Batch):
    """A batch for both directions: their inputs and targets, and the characters or ids of the distinct `words`."""

    shared: ClassVar[frozenset[str]] = frozenset({"words", "sample"})
    rightward: Direction
    leftward: Direction
    words: Tensor
    sample: WordSample | None = None
    """The words of a sampled softmax."""
    noise: Tensor | None = None
    """Noise words (B, T, K), for context2vec."""

    @property
    def count(self) -> int:
        """The number of predictions: two for each word, or one with context2vec."""
        return self.rightward.targets.numel() * (2 if self.noise is None else 1)


class BatchConverter:
    """A converter from rows of a text to batches for both directions."""

    def __init__(self, text: WordText, reader: WordReader) -> None:
        self.text, self.reader = text, reader

    def blocks(self, words: Ids, device: torch.device) -> BidirectionalBatch:
        """Return a batch of independent rows of words (B, T). Both directions begin with a boundary."""
        boundary = np.full((len(words), 1), LINE_END)
        reverse = words[:, ::-1]
        right, left = (np.hstack((boundary, row[:, :-1])) for row in (words, reverse))
        return self._make_batch(right, words, left, reverse, device, first=True)

    def segments(self, rightward: TokenBatch, leftward: TokenBatch, device: torch.device) -> BidirectionalBatch:
        """Return a batch with a segment of the text for each direction. Both arguments are in the order of the text."""
        rows = np.hstack((leftward.inputs, leftward.targets[:, -1:]))[:, ::-1]
        right = rightward.inputs, rightward.targets
        return self._make_batch(*right, rows[:, :-1], rows[:, 1:], device, first=rightward.first)

    def _make_batch(
        self, right: Ids, right_targets: Ids, left: Ids, left_targets: Ids, device: torch.device, *, first: bool
    ) -> BidirectionalBatch:
        (words, rightward, leftward), ids = self.reader.batch(self.text, right, left), self.text.ids
        return BidirectionalBatch(
            Direction(on_device(rightward, device), on_device(ids[right_targets], device)),
            Direction(on_device(leftward, device), on_device(ids[left_targets], device)),
            on_device(words, device), first=first,
        )  # fmt: skip


class BidirectionalLanguageModeling(Task[BidirectionalModel, BidirectionalBatch]):
    """The task of bidirectional language models, on segments with carried state or on independent blocks."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self, batches: Segments | Blocks, rows: BatchConverter, *, sampled: corpus.SampledWords | None = None,
        reset_state: float = 0.0, valid: Callable[[BidirectionalModel], Scores] | None,
    ) -> None:  # fmt: skip
        self.batches, self.rows, self.sampled, self.reset_state = batches, rows, sampled, reset_state
        self.steps_per_epoch = batches.steps_per_epoch
        self.tokens_per_step = batches.batch_size * batches.segment_length
        self.valid = valid

    def batch(self, step: int, device: torch.device) -> BidirectionalBatch:
        batch = self.batches.batch(step)
        if isinstance(self.batches, Segments):
            # the leftward direction reads the segments of an epoch from the last to the first
            epoch, index = divmod(step, self.steps_per_epoch)
            mirrored = self.batches.batch(epoch * self.steps_per_epoch + self.steps_per_epoch - 1 - index)
            converted = self.rows.segments(batch, mirrored, device)
        else:
            converted = self.rows.blocks(batch.inputs, device)
        return replace(converted, sample=None if self.sampled is None else self.sampled.draw(step, device))

    def initial_state(self, model: BidirectionalModel) -> State:
        return model.init_state(self.batches.batch_size) if isinstance(self.batches, Segments) else None

    def carry_state(self, model: BidirectionalModel, batch: LazyBatch[BidirectionalBatch], state: State) -> State:
        """Return the state before the next segment: None at the start of an epoch, else with some rows reset."""
        return None if batch.first else reset(state, self.reset_state, model.init_state)

    def loss(self, model: BidirectionalModel, batch: BidirectionalBatch, state: State) -> tuple[Loss, State]:
        assert isinstance(model, BidirectionalLanguageModel)
        loss, state = model.loss(batch.words, batch.rightward, batch.leftward, state, sample=batch.sample)
        return loss, state if isinstance(self.batches, Segments) else None


@dataclass(frozen=True)
class TwoWayScores(Scores):
    """The scores of both directions of a bidirectional language model."""

    forward: LanguageScores
    backward: LanguageScores

    @property
    def both(self) -> LanguageScores:
        """The scores over all predictions of both directions."""
        return self.forward + self.backward

    def as_json(self) -> dict[str, Any]:
        """Return the values of `evaluate --json`. `nats_per_token` and `perplexity` are means over both directions."""
        return {
            "nats_per_token": finite(self.both.nats_per_token), "perplexity": finite(self.both.perplexity),
            "perplexity_forward": finite(self.forward.perplexity),
            "perplexity_backward": finite(self.backward.perplexity), "tokens": self.forward.tokens,
            "characters": self.forward.characters, "unknown": self.forward.unknown,
        }  # fmt: skip

    def summary(self) -> str:
        return (
            f"{self.both.nats_per_token:.4f} nats per token, perplexity {self.both.perplexity:,.2f} "
            f"(forward {self.forward.perplexity:,.2f}, backward {self.backward.perplexity:,.2f})"
        )


class PerplexityObjective:
    """The objective of a bidirectional language model, the surprisal of each word given the words on one side."""

    def __init__(self, head: SoftmaxOutput | NoOutput) -> None:
        self.head = head

    def task(
        self, batches: Segments | Blocks, rows: BatchConverter, counts: Ids, **options: Any
    ) -> BidirectionalLanguageModeling:
        """Return the training task. `counts` has the count of each word in the vocabulary."""
        assert isinstance(self.head, SoftmaxOutput)
        sampled = corpus.sampled_words(self.head, counts, batches.seed)
        return BidirectionalLanguageModeling(batches, rows, sampled=sampled, **options)

    @torch.inference_mode()
    def score(
        self, model: Any, text: WordText, reader: WordReader, *, progress: Progress | None = None,
        collect: Callable[[Ids, Tensor], object] | None = None,
    ) -> TwoWayScores:  # fmt: skip
        """Return the perplexity of each direction, by the protocol of language models (`tasks.texts.scoring`).

        `collect` is called with positions in the text and their nats, for each direction.
        """

        def collect_leftward(positions: Ids, nats: Tensor) -> None:
            assert collect is not None
            collect(len(text.tokens) - 1 - positions, nats)

        with evaluating(model):
            vectors, scores = word_vectors(model, reader, text.words), []
            for layers, boundary, tokens, collect_nats in (
                (model.rightward, TEXT_BEGIN, text.tokens, collect),
                (model.leftward, TEXT_END, text.tokens.reversed(), collect and collect_leftward),
            ):
                table = vectors[FIRST_WORD:].clone()
                table[LINE_END] = vectors[boundary]
                ids = torch.from_numpy(text.ids).to(table.device)
                direction = DirectionalLanguageModel(table, layers, model.head, ids)
                score = score_text(direction, tokens, start_id=LINE_END, progress=progress, collect=collect_nats)
                scores.append(replace(score, unknown=text.unknown))
        return TwoWayScores(*scores)

    def items(self, model: Any, text: WordText, reader: WordReader) -> ScoredItems:
        """Return the nats and the number of predictions of each block of the text, for confidence intervals."""
        count = len(text.tokens)
        nats = PieceNats(np.minimum(np.arange(PIECE_TOKENS, count + PIECE_TOKENS, PIECE_TOKENS), count))
        self.score(model, text, reader, collect=nats)
        rows = ItemRows(zip(nats.totals, 2 * nats.tokens, strict=True))
        return rows.build_items("blocks", {"nats_per_token": quotient(0, 1)})

    def protocol(self, tokens: int) -> str:
        """Return a description of the protocol for a text of `tokens` tokens."""
        warm_up = f", in {parts} parts with a warm-up each" if (parts := default_parts(tokens)) > 1 else ""
        return f"read once by each direction, state carried{warm_up}"


EVALUATION_SEED = 15
"""The seed of the noise in evaluation. It is the same for every model and run."""
MAX_SCORED_WORDS = 4096
"""The largest number of words in a call of the model, unless a single block has more."""


@dataclass(frozen=True)
class ContextScores(Scores):
    """The loss of context2vec in nats, summed over `tokens` words with `negatives` noise words for each word."""

    in_json = ("noise_nats", "tokens", "unknown", "negatives")
    total_nats: float
    tokens: int
    unknown: int
    negatives: int

    @property
    def noise_nats(self) -> float:
        """The mean loss per word."""
        return ratio_or_nan(self.total_nats, self.tokens)

    def summary(self) -> str:
        return f"{self.noise_nats:.4f} nats per word with {self.negatives} noise words"


class ContextModeling(BidirectionalLanguageModeling):
    """The task of context2vec, on independent blocks with negative sampling."""

    judged_by = "noise_nats"

    def __init__(
        self, batches: Segments | Blocks, rows: BatchConverter, noise: Noise, negatives: int, **options: Any
    ) -> None:
        super().__init__(batches, rows, **options)
        self.noise, self.negatives = noise, negatives

    def batch(self, step: int, device: torch.device) -> BidirectionalBatch:
        return add_noise(super().batch(step, device), self.noise, self.negatives, key=mix(self.batches.seed, step))

    def loss(self, model: BidirectionalModel, batch: BidirectionalBatch, state: State) -> tuple[Loss, State]:
        assert isinstance(model, ContextModel)
        assert batch.noise is not None
        return model.loss(batch.words, batch.rightward, batch.leftward, batch.noise), None


class ContextObjective:
    """The objective of context2vec, which distinguishes each word from noise words by the context of the word."""

    def __init__(self, head: ContextOutput, length: int) -> None:
        self.head, self.length = head, length

    def task(self, batches: Segments | Blocks, rows: BatchConverter, counts: Ids, **options: Any) -> ContextModeling:
        """Return the training task. `counts` has the count of each word in the vocabulary."""
        noise = noise_distribution(counts, self.head.noise_power)
        return ContextModeling(batches, rows, noise, self.head.negatives, **options)

    @torch.inference_mode()
    def score(
        self, model: Any, text: WordText, reader: WordReader, *, progress: Progress | None = None,
        collect: Callable[[float, int], object] | None = None,
    ) -> ContextScores:  # fmt: skip
        """Return the loss on a text in blocks. `collect` is called with the summed nats and the number of words."""
        noise = noise_distribution(model.counts.cpu().numpy(), self.head.noise_power)

        def compute_nats(block: tuple[int, Ids]) -> float:
            number, words = block
            batch = BatchConverter(text, reader).blocks(words, device_of(model))
            batch = add_noise(batch, noise, self.head.negatives, key=mix(EVALUATION_SEED, number))
            assert batch.noise is not None
            nats = float(model.loss(batch.words, batch.rightward, batch.leftward, batch.noise).total)
            if collect is not None:
                collect(nats, words.size)
            if progress is not None:
                progress(words.size)
            return nats

        with evaluating(model):
            total = sum(sharded_map(compute_nats, enumerate(_iterate_blocks(text, self.length))), 0.0)
        return ContextScores(total, len(text.tokens), text.unknown, self.head.negatives)

    def items(self, model: Any, text: WordText, reader: WordReader) -> ScoredItems:
        """Return the loss and the number of words of each group of blocks, for confidence intervals."""
        rows = ItemRows()
        self.score(model, text, reader, collect=lambda nats, words: rows.append((nats, words)))
        return rows.build_items("groups of blocks", {"noise_nats": quotient(0, 1)})

    def protocol(self, tokens: int) -> str:
        """Return a description of the protocol."""
        return f"read once in blocks of {self.length:,} words, with the same noise words for every model"


def _iterate_blocks(text: WordText, length: int) -> Iterator[Ids]:
    """Yield rows of `length` words: up to `MAX_SCORED_WORDS` words or one row at a time, then the shorter last row."""
    size, rows = len(text.tokens), max(1, MAX_SCORED_WORDS // length)
    end = size // length * length
    for start in range(0, end, rows * length):
        yield text.tokens.read(start, min(start + rows * length, end)).reshape(-1, length)
    if end < size:
        yield text.tokens.read(end, size)[None]


def add_noise(batch: BidirectionalBatch, noise: Noise, negatives: int, *, key: int) -> BidirectionalBatch:
    """Return the batch with noise words from the random stream `key`."""
    shape = (*batch.rightward.targets.shape, negatives)
    drawn = noise.draw(key, np.arange(int(np.prod(shape)))).astype(np.int64).reshape(shape)
    return replace(batch, noise=on_device(drawn, batch.words.device))


def noise_distribution(counts: Ids, power: float) -> Noise:
    """Return the distribution of noise words for the counts of a vocabulary."""
    return Noise(np.power(counts.astype(np.float64), power))


def build_objective(recipe: BidirectionalRecipe) -> PerplexityObjective | ContextObjective:
    """Return the objective of a recipe."""
    if isinstance(recipe.head, ContextOutput):
        return ContextObjective(recipe.head, recipe.train.segment_length)
    return PerplexityObjective(recipe.head)


class BidirectionalJob(corpus.CorpusJob[BidirectionalModel]):
    """The training of a bidirectional language model, or of context2vec."""

    unit: ClassVar[str] = "predictions"
    recipe: BidirectionalRecipe
    parts: BidirectionalParts
    task: BidirectionalLanguageModeling

    @classmethod
    def reader_of(cls, recipe: BidirectionalRecipe) -> None:
        return None

    def __init__(self, recipe: BidirectionalRecipe, run: RunDirectory | None = None) -> None:
        if isinstance(recipe.head, NoOutput):
            raise RecipeError('a model with head.kind = "none" cannot be trained; expected "softmax" or "context"')
        self.recipe, data = recipe, recipe.data
        tokenizer = run.parts.tokenizer if run else None
        reader = self._train_full_tokenizer
        self.corpus = corpus.read_corpus(data, recipe.tokenizer, tokenizer, reader=reader, resumed=run)
        assert isinstance(self.corpus.tokenizer, WordTokenizer)
        self.parts, self.fingerprint = BidirectionalParts(self.corpus.tokenizer), self.corpus.fingerprint
        self.reader = WordReader(self.corpus.tokenizer, recipe.words)
        self.text, train, self.objective = self._index_text(self.corpus.train), recipe.train, build_objective(recipe)
        sizes = {"batch_size": train.batch_size, "segment_length": train.segment_length}
        valid = None if self.corpus.valid is None else self.encode(self.corpus.valid)
        self.task = self.objective.task(
            (Segments if train.carry_state else Blocks)(self.text.tokens, **sizes, seed=train.seed),
            BatchConverter(self.text, self.reader), self.counts, reset_state=train.reset_state, valid=valid
        )  # fmt: skip

    def _train_full_tokenizer(self, tokenizer: Any) -> WordTokenizer:
        """Return a tokenizer of all words in the texts, including words that the softmax cannot predict."""
        data = self.recipe.data
        sources = [TextSource(path, encoding=data.encoding) for path in (data.train, data.valid, data.test) if path]
        self.words = train_word_tokenizer(TextSource.concatenate(sources), tokenizer)
        return self.words

    @property
    def text_tokenizer(self) -> WordTokenizer:
        return self.words

    def encode(self, data: TokenFile) -> Callable[[BidirectionalModel], Scores]:
        return partial(self.objective.score, text=self._index_text(data), reader=self.reader)

    def _index_text(self, tokens: TokenFile) -> WordText:
        return WordText.of(tokens, self.words, self.parts.tokenizer)

    def unknown_in(self, tokens: TokenFile) -> int:
        return self._index_text(tokens).unknown

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        counts = corpus.count_tokens(self.text.tokens, len(self.text.words))
        return np.bincount(self.text.ids, counts, minlength=self.parts.vocabulary_size).astype(np.int64)

    @property
    def data(self) -> str:
        return f"{super().data}, {len(self.text.words):,} distinct words"

    @property
    def notes(self) -> list[str]:
        rows, batch_size = self.task.batches.batch_size, self.recipe.train.batch_size
        notes = [f"the text fills {rows} rows of a batch, not {batch_size}"] if rows < batch_size else []
        head, unknown = self.recipe.head, self.text.unknown / len(self.text.tokens)
        if isinstance(head, SoftmaxOutput):
            notes += corpus.notes_on_sampling(head, len(self.counts))
        if unknown > 0.01:
            notes.append(f"{unknown:.1%} of the training words are predicted as <unk>")
        return [*notes, *self.notes_on_validation()]

    def protocol(self, model: BidirectionalModel) -> str:
        valid = self.corpus.valid
        return "" if valid is None else f"validation: {self.objective.protocol(len(valid))}"

    def prepare(self, model: BidirectionalModel) -> None:
        model.start_from_counts(torch.from_numpy(self.counts))

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} words"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        if isinstance(self.objective, ContextObjective):
            return super().score_lines(scores)
        formats = {
            "nats_per_token": ("nats per token", ".4f"), "perplexity": ("perplexity", ".2f"),
            "perplexity_forward": ("forward", ".2f"), "perplexity_backward": ("backward", ".2f"),
            "tokens": ("tokens", ","), "unknown": ("unknown", ","),
        }  # fmt: skip
        return score_table(scores, formats, "text")
