"""The training task of sequence to sequence: batches of pairs, limits of length, loss, surprisal, search."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import batch_by_length
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair
from ensue.decode.beam import beam_search
from ensue.decode.candidates import Candidate
from ensue.decode.generation import Ensemble
from ensue.decode.search import BeamSearch, Hypothesis, Phrase
from ensue.engine import caching
from ensue.errors import fields_by_option
from ensue.models.compiled_decoder import compile_decoder
from ensue.models.encoder_decoder import TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import EncoderSpecification, TransformerEncoder
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import sharded_map
from ensue.tasks.contract.chunks import MAX_ATTENTION_TOKENS, check_num_units, chunks, max_positions
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, NamedScores, on_device
from ensue.tasks.sequence_to_sequence.recipe import SearchTable, SequenceToSequenceRecipe
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.words.pipeline import ContextualFeatures, WordLayers
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.types import Loss, State

Item = TypeVar("Item")
CHUNK_SOURCES = 1_024
"""The number of sources that are read and sorted by length at a time."""


class SourceRows(Protocol):
    """Sources in memory: rows of ids, or of vectors."""

    lengths: NDArray[np.int64]
    """The number of positions of each source."""

    def padded(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return sources as an array (B, S) or (B, S, d), padded with zeros to the longest of `among`."""

    def mask(self, rows: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
        """Return a mask (B, S) of the real positions of `padded`; None if `among` has no padding."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Sources:
    """Encoded sources."""

    rows: SourceRows
    contextual: tuple[tuple[WordLayers, ...], ...] = ((),)
    """For each model of an ensemble, the vectors of words from other runs."""

    @classmethod
    def of(
        cls, ids: Sequence[NDArray[np.int64]], columns: Sequence[Sequence[str]], coder: PairCoder,
        contextual: Sequence[ContextualFeatures],
    ) -> "Sources":  # fmt: skip
        """Return sources with `ids`, whose texts are `columns`, for models with the features `contextual`."""
        words = [coder.words(texts) for texts in columns] if any(features.origins for features in contextual) else []
        return cls(Ragged.of(ids), tuple(features.vectors_on_demand(words) for features in contextual))

    def __len__(self) -> int:
        return len(self.rows)


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of CHUNK_SOURCES items, so that a file of any length is read in constant memory."""
    return chunks(items, chunk_items=CHUNK_SOURCES)


MAX_SOURCE_TOKENS = 250_000
"""The maximum number of source tokens without attention, whose activations take about a gigabyte."""
SOURCE_ADVICE = "cut it, or train with data.source_tokens, which reads the first tokens of each source"
TARGET_ADVICE = "cut it, or leave it out; in training data.target_tokens leaves out longer targets"


def max_lengths(recipe: SequenceToSequenceRecipe) -> tuple[int, int]:
    """Return the maximum numbers of tokens of a source and of a target."""
    limit = MAX_SOURCE_TOKENS if recipe.attention.kind == "none" else MAX_ATTENTION_TOKENS
    return max_positions(recipe.encoder or recipe.decoder, limit), max_positions(recipe.decoder, limit)


def check_lengths(recipe: SequenceToSequenceRecipe, pair: Pair, source: int, target: int = 0) -> None:
    """Raise DataError, with file and line, if the source or target has too many tokens for the model."""
    sides = (
        ("a source of tokens", source, recipe.encoder or recipe.decoder, "encoder", SOURCE_ADVICE),
        ("a target of tokens", target, recipe.decoder, "decoder", TARGET_ADVICE),
    )
    for (name, count, encoder, table, advice), limit in zip(sides, max_lengths(recipe), strict=True):
        check_num_units(name, count, limit, encoder, table=table, advice=advice, path=pair.path, line=pair.line)


def max_output_tokens(*decoders: EncoderSpecification) -> int | None:
    """Return the maximum number of output tokens of all decoders, without the end symbol; None: no limit."""
    learned = [d for d in decoders if isinstance(d, TransformerEncoder) and d.positions == "learned"]
    return max(1, min(decoder.context for decoder in learned) - 1) if learned else None


MAX_BATCH_TOKENS, MAX_BATCH_ROWS = 8_192, 256
"""The maximum numbers of tokens and pairs in a batch outside of training."""
RATIO_QUANTILE = 0.999


@dataclass(frozen=True)
class PairBatch(Batch):
    """A batch of pairs, padded on the right. Masks are None without padding."""

    sources: Tensor
    """Ids (B, S) or vectors (B, S, d)."""
    source_mask: Tensor | None
    targets: Tensor
    """Ids (B, T) with end symbols."""
    target_mask: Tensor | None
    contextual: tuple[Tensor, ...] = ()
    """The vectors of the words of sources from other runs."""


class EncodedPairs(NamedTuple):
    """Encoded sources and targets."""

    sources: SourceRows
    targets: Ragged
    contextual: tuple[WordLayers, ...] = ()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of positions of each pair, the sum of both sides."""
        return self.sources.lengths + self.targets.lengths

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> PairBatch:
        """Return the slice `row_slice` of the batch of the pairs `rows`."""
        sides, local_rows = (self.sources, self.targets), row_slice.select(rows)
        masks = (side.mask(local_rows, among=rows) for side in sides)
        source_mask, target_mask = (None if mask is None else on_device(mask, device) for mask in masks)
        sources, targets = (on_device(side.padded(local_rows, among=rows), device) for side in sides)
        layers = tuple(layers.batch(rows, device, row_slice) for layers in self.contextual)
        return PairBatch(sources, source_mask, targets, target_mask, layers)

    def __len__(self) -> int:
        return len(self.sources)


class SequenceToSequence(BucketedTask[TextModel, PairBatch]):
    """Training on pairs of similar length. Validation measures nats per token. `sampler` returns sample outputs."""

    judged_by = "nats_per_token"
    less_is_better = True

    def __init__(
        self, train: EncodedPairs, valid: EncodedPairs | None, *, begin_id: int, sizes: BatchSizes,
        sampler: Callable[[TextModel], str] = lambda model: "",
    ) -> None:  # fmt: skip
        self.train, self.valid, self.begin_id, self.sampler = train, valid, begin_id, sampler
        super().__init__(train.lengths, sizes, num_tokens=int(train.targets.lengths.sum()))

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.train.targets.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> PairBatch:
        return self.train.batch(rows, device, row_slice)

    def loss(self, model: TextModel, batch: PairBatch, state: State) -> tuple[Loss, State]:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        inputs = right_shifted(batch.targets, self.begin_id)
        return model.loss(inputs, batch.targets, state, mask=batch.target_mask), None

    def score(self, model: TextModel, data: EncodedPairs) -> NamedScores:
        totals = sharded_map(lambda rows: float(_nats(model, data, rows, self.begin_id).sum()), _batches(data))
        return NamedScores(nats_per_token=sum(totals) / int(data.targets.lengths.sum()))

    def sample(self, model: TextModel, seed: int) -> str:
        return self.sampler(model)


def length_ratio(train: EncodedPairs) -> float:
    """Return the quantile `RATIO_QUANTILE` of the number of target tokens per source position."""
    return float(np.quantile(train.targets.lengths / train.sources.lengths, RATIO_QUANTILE))


def _batches(pairs: EncodedPairs) -> Iterator[NDArray[np.int64]]:
    return batch_by_length(pairs.lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS)


def _nats(model: TextModel, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int) -> Tensor:
    """Return the surprisals (B, T) of the target tokens of the pairs `rows`, 0 at padding."""
    batch = pairs.batch(rows, device_of(model))
    with torch.inference_mode(), evaluating(model):
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        nats = model.nats(right_shifted(batch.targets, begin_id), batch.targets, state)
    return nats if batch.target_mask is None else nats.masked_fill(~batch.target_mask, 0.0)


MAX_SEARCH_ROWS, MAX_SEARCH_TOKENS = 64, 4_096
"""The maximum numbers of sources and of their tokens in a batch."""
MAX_HYPOTHESES = 1_000
"""The maximum number of hypotheses in a batch of sources. Each hypothesis has a score for every token."""
Constraint = tuple[Sequence[Phrase], Collection[Phrase]]
"""The required phrases and the forbidden phrases of an output."""
EXTRA_TOKENS = 10
"""The number of tokens by which an output may exceed the ratio of lengths in the training data."""


def search_of(table: SearchTable, target: TokenizerWithSpecials, **changes: Any) -> BeamSearch:
    """Return the search of a table `[search]`, with all special tokens forbidden except the end symbol. Raise
    EnsueError for settings that are out of range or contradict each other.
    """
    special = tuple((id,) for id in target.special_ids if id != target.end_id)
    names = fields_by_option(BeamSearch)
    search = BeamSearch(**{names[name]: value for name, value in table.model_dump().items()}, forbidden=special)
    return replace(search, **changes)


def output_limits(sources: Sources, ratio: float, search: BeamSearch, bound: int | None = None) -> list[int]:
    """Return the maximum length of each output: proportional to its source, at most `bound` and `search.max_tokens`."""
    limits = np.ceil(sources.rows.lengths * ratio).astype(np.int64) + EXTRA_TOKENS + search.min_tokens
    return [int(tokens) for tokens in np.minimum(limits, min(search.max_tokens, bound or search.max_tokens))]


def max_rows(search: BeamSearch) -> int:
    """Return the maximum number of sources in a batch."""
    return max(1, min(MAX_SEARCH_ROWS, MAX_HYPOTHESES // search.width))


def find_outputs(
    models: Sequence[TextModel], sources: Sources, search: BeamSearch, *, target: TokenizerWithSpecials,
    limits: Sequence[int], constraints: Sequence[Constraint] = (), record: list[Candidate] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """Return the best hypotheses of each source. Several models are an `Ensemble`. `limits` are the maximum lengths of
    the outputs, and `constraints` their constraints. All candidates for a single source are appended to `record`.
    """
    best_of: list[list[Hypothesis]] = [[] for _ in range(len(sources))]
    with caching():
        for rows in batch_by_length(sources.rows.lengths, batch_size=max_rows(search), batch_tokens=MAX_SEARCH_TOKENS):
            model, state = init_decoding(models, sources, rows, is_compiled=not search.coverage_penalty)
            starts = torch.full((len(rows),), target.begin_id, device=device_of(models[0]))
            batch_constraints = [constraints[row] for row in rows.tolist()] if constraints else []
            best = beam_search(
                model, state, starts, end_id=target.end_id, search=search,
                max_tokens=[limits[row] for row in rows.tolist()],
                required=[required for required, _ in batch_constraints],
                forbidden=[sorted(forbidden) for _, forbidden in batch_constraints], record=record,
            )  # fmt: skip
            for row, hypotheses in zip(rows.tolist(), best, strict=True):
                best_of[row] = hypotheses
    return best_of


@torch.inference_mode()
def init_decoding(
    models: Sequence[TextModel], sources: Sources, rows: NDArray[np.int64], *, is_compiled: bool = False
) -> tuple[Any, State]:
    """Return a decoder and its state after the sources `rows`. If `is_compiled`, the decoder may lack taps."""
    device, mask = device_of(models[0]), sources.rows.mask(rows)
    ids, pairs = on_device(sources.rows.padded(rows), device), list[tuple[Any, State]]()
    for model, contextual in zip(models, sources.contextual, strict=True):
        layers = [vectors.batch(rows, device) for vectors in contextual]
        arguments = ids, None if mask is None else on_device(mask, device), layers
        with evaluating(model):
            compiled = compile_decoder(model, *arguments) if is_compiled else None
            pairs.append(compiled or (model, model.begin(*arguments)))
    decoders, states = zip(*pairs, strict=True)
    return pairs[0] if len(models) == 1 else (Ensemble(decoders), states)


def mean_surprisals(
    models: Sequence[TextModel], sources: Sources, targets: Ragged, *, begin_id: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield batches of similar length: the indices (B,) of pairs, and the nats (B, T) of targets, 0 at padding.

    The probabilities of an ensemble are means over the models.
    """
    pairs = [EncodedPairs(sources.rows, targets, contextual) for contextual in sources.contextual]
    for rows in _batches(pairs[0]):
        nats = [_nats(*of_model, rows, begin_id) for of_model in zip(models, pairs, strict=True)]
        yield rows, nats[0] if len(models) == 1 else math.log(len(models)) - (-torch.stack(nats)).logsumexp(0)
