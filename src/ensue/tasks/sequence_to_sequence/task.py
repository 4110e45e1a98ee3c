"""Sequence to sequence: sources and the lengths that are read, batches of pairs, their loss, and their surprisal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged, RaggedRows
from ensue.data.examples import Pair
from ensue.models.encoder_decoder import TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import EncoderSpecification, TransformerEncoder
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import spread
from ensue.tasks.contract.chunks import MOST_ATTENDED, check_read, chunks, most_read
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, NamedScores, on_device
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import Ids, PairCoder
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.types import Loss, State

Item = TypeVar("Item")
CHUNK = 1_024
"""Sources that are held and sorted by length."""


class SourceRows(Protocol):
    """Sources in memory: rows of ids, or of vectors."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of positions of each source."""

    def padded(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return sources side by side (B, S) or (B, S, d), padded with zeros to the longest of `among`."""

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Return which positions of `padded` are real, (B, S); None if all of `among` are."""

    def __len__(self) -> int:
        """Return the number of sources."""


@dataclass(frozen=True)
class Sources:
    """Sources, and for each of the models that read them their words in the layers of other runs."""

    rows: SourceRows
    contextual: tuple[tuple[LayersOfTexts, ...], ...] = ((),)

    @classmethod
    def of(
        cls,
        ids: Sequence[NDArray[np.int64]],
        columns: Sequence[Sequence[str]],
        coder: PairCoder,
        contextual: Sequence[ContextualFeatures],
    ) -> Sources:
        """Return the sources with these `ids`, whose texts are `columns`, for models that have these features."""
        words = [coder.words(texts) for texts in columns] if any(one.origins for one in contextual) else []
        return cls(Ragged.of(ids), tuple(one.computed(words) for one in contextual))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of positions of each source."""
        return self.rows.lengths

    def __len__(self) -> int:
        return len(self.rows)


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Return the items in order, CHUNK together, so that a file of any length is read in constant memory."""
    return chunks(items, most_items=CHUNK)


MOST_READ = 250_000
"""The most tokens of a text where nothing attends to it; what is kept of them takes about a gigabyte."""
CUT = "cut it, or train with data.source_tokens, which reads the first tokens of each source"
LEAVE = "cut it, or leave it out; in training data.target_tokens leaves out longer ones"


def longest_read(recipe: SequenceToSequenceRecipe) -> tuple[int, int]:
    """Return the most tokens of a source and of a target."""
    otherwise = MOST_READ if recipe.attention.kind == "none" else MOST_ATTENDED
    return most_read(recipe.encoder or recipe.decoder, otherwise), most_read(recipe.decoder, otherwise)


def check_lengths(recipe: SequenceToSequenceRecipe, pair: Pair, source: int, target: int = 0) -> None:
    """Raise DataError, with file and line, if the model does not read so many tokens of the source or the target."""
    sides = (
        ("a source of tokens", source, recipe.encoder or recipe.decoder, "encoder", CUT),
        ("a target of tokens", target, recipe.decoder, "decoder", LEAVE),
    )
    for (what, count, encoder, table, advice), most in zip(sides, longest_read(recipe), strict=True):
        check_read(what, count, most, encoder, table=table, advice=advice, path=pair.path, line=pair.line)


def most_written(*decoders: EncoderSpecification) -> int | None:
    """Return the most tokens that all decoders can write before an end, which is read after them; None: any number."""
    learned = [d for d in decoders if isinstance(d, TransformerEncoder) and d.positions == "learned"]
    return max(1, min(decoder.context for decoder in learned) - 1) if learned else None


READ_TOKENS, READ_ROWS = 8_192, 256
"""The most tokens, and the most pairs, in a batch outside of training."""

USUAL = 0.999
"""The share of training pairs whose ratio of lengths bounds that of outputs."""


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources, ids (B, S) or vectors (B, S, d), and targets (B, T), which end with the end symbol, padded on the right.

    A mask is None where nothing is padded.
    """

    sources: Tensor
    source_mask: Tensor | None
    targets: Tensor
    target_mask: Tensor | None
    contextual: tuple[Tensor, ...] = ()
    """The words of the sources in the layers of other models."""


class EncodedPairs(NamedTuple):
    """Pairs as rows, and the sources' words in the layers of other models."""

    sources: SourceRows
    targets: Ragged
    contextual: tuple[LayersOfTexts, ...] = ()

    @classmethod
    def of_targets(cls, sources: SourceRows, targets: Iterable[Ids]) -> Self:
        """Sources with a target each."""
        rows = RaggedRows()
        for target in targets:
            rows.append(target)
        return cls(sources, rows.ragged())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of positions of both sides of each pair."""
        lengths: NDArray[np.int64] = self.sources.lengths + self.targets.lengths
        return lengths

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> PairBatch:
        """Return the batch of the pairs in these rows, cut."""
        sides, local_rows = (self.sources, self.targets), row_slice.of(rows)
        masks = (side.mask(local_rows, among=rows) for side in sides)
        source_mask, target_mask = (None if mask is None else on_device(mask, device) for mask in masks)
        sources, targets = (on_device(side.padded(local_rows, among=rows), device) for side in sides)
        layers = tuple(part.batch(rows, device, row_slice) for part in self.contextual)
        return PairBatch(sources, source_mask, targets, target_mask, layers)

    def __len__(self) -> int:
        return len(self.sources)


class SequenceToSequence(BucketedTask[TextModel, PairBatch]):
    """Pairs of similar length, judged by nats per target token. `sampled` shows the outputs for a few sources."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self,
        train: EncodedPairs,
        valid: EncodedPairs | None,
        *,
        begin_id: int,
        sizes: BatchSizes,
        sampled: Callable[[TextModel], str] = lambda model: "",
    ) -> None:
        self.train, self.valid, self.begin_id, self.sampled = train, valid, begin_id, sampled
        super().__init__(train.lengths, sizes, num_tokens=int(train.targets.lengths.sum()))

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.train.targets.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> PairBatch:
        return self.train.batch(rows, device, row_slice)

    def loss(self, model: TextModel, batch: PairBatch, state: State) -> tuple[Loss, State]:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        inputs = right_shifted(batch.targets, self.begin_id)
        return model.loss(inputs, batch.targets, state, mask=batch.target_mask), None

    def validate(self, model: TextModel) -> NamedScores | None:
        if self.valid is None:
            return None
        valid = self.valid
        totals = spread(lambda rows: float(_nats(model, valid, rows, self.begin_id).sum()), _by_length(valid))
        return NamedScores(nats_per_token=sum(totals) / int(valid.targets.lengths.sum()))

    def sample(self, model: TextModel, seed: int) -> str:
        return self.sampled(model)


def usual_ratio(train: EncodedPairs) -> float:
    """Return the number of target tokens per source position that hardly a training pair exceeds."""
    return float(np.quantile(train.targets.lengths / train.sources.lengths, USUAL))


def surprisals(model: TextModel, pairs: EncodedPairs, *, begin_id: int) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield the surprisal in nats of the targets' tokens (B, T), 0 at padding, with the numbers of the pairs; by
    length.
    """
    for rows in _by_length(pairs):
        yield rows, _nats(model, pairs, rows, begin_id)


def _by_length(pairs: EncodedPairs) -> Iterator[NDArray[np.int64]]:
    return by_length(pairs.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS)


def _nats(model: TextModel, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int) -> Tensor:
    """Return the surprisal of the targets' tokens (B, T) of these pairs."""
    batch = pairs.batch(rows, device_of(model))
    with torch.inference_mode(), evaluating(model):
        begun = model.begin(batch.sources, batch.source_mask, batch.contextual)
        nats = model.nats(right_shifted(batch.targets, begin_id), batch.targets, begun)
    return nats if batch.target_mask is None else nats.masked_fill(~batch.target_mask, 0.0)
