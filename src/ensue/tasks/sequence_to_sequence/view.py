"""The values of an encoder–decoder for its inspection page: attention, copying, and the search."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import batch_by_length
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair
from ensue.decode.beam import attention_taps
from ensue.decode.candidates import Candidate
from ensue.decode.search import Hypothesis
from ensue.inspection.encoder import LayerAttention, LayerTrace, record_attention, trace_layers
from ensue.models.encoder_decoder import EncoderDecoder, TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.nn import AttentionBefore, CopyingHead, joined_steps, watch
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, Sources, init_decoding
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.sequence_to_sequence.writer import Output, TokenAlignment, symbols_of
from ensue.types import State

MAX_BATCH_ROWS, MAX_BATCH_TOKENS = 32, 4_096
"""The maximum numbers of pairs and of their tokens in a batch, whose attention weights are in memory."""


def align(
    model: TextModel, coder: PairCoder, answers: Sequence[tuple[Pair, Output]], sources: Sources
) -> list[TokenAlignment | None]:
    """Return the alignment of each output with its source; None for a model without attention."""
    alignments: list[TokenAlignment | None] = [None] * len(answers)
    copying = [f"{name}.weights" for name, module in model.named_modules() if isinstance(module, CopyingHead)]
    tap = next(reversed([*attention_taps(model), *copying]), None)
    if tap is None:
        return alignments
    targets = Ragged.of(np.array([*output.ids, coder.target.end_id]) for _, output in answers)
    pairs = EncodedPairs(sources.rows, targets, sources.contextual[0])
    for rows in batch_by_length(pairs.lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS):
        positions_of_rows = _find_aligned_positions(model, tap, pairs, rows, coder.target.begin_id)
        for row, positions in zip(rows.tolist(), positions_of_rows, strict=True):
            (pair, output), (source,) = answers[row], sources.rows.padded(np.array([row])).tolist()
            source_tokens = tuple(map(symbols_of(coder, pair.sources, is_source=True), source))
            tokens = tuple(map(symbols_of(coder, pair.sources), output.ids))
            alignments[row] = TokenAlignment(source_tokens, tokens, tuple(positions[: len(tokens)]))
    return alignments


@torch.inference_mode()
def _find_aligned_positions(
    model: TextModel, tap: str, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int
) -> list[list[int]]:
    """Return the index of the source token with the most attention, for each target token of the pairs `rows`."""
    batch = pairs.batch(rows, device_of(model))
    with evaluating(model), watch(model, tap) as outputs:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        model.nats(right_shifted(batch.targets, begin_id), batch.targets, state)
    return joined_steps(outputs[tap], batch.targets.shape[1]).argmax(2).tolist()


MAX_OPTIONS = 5
"""The maximum number of listed tokens for each position."""


class Alignment(NamedTuple):
    """A layer of attention to the source."""

    name: str
    weights: NDArray[np.float32]
    """The weights (H, T, S) of H heads; each row (S,) sums to 1."""


class CopyingValues(NamedTuple):
    """The values of a copying head."""

    weights: NDArray[np.float32]
    """The distribution over the source (T, S)."""
    generates: NDArray[np.float64]
    """The probability of generating a token from the vocabulary (T,)."""
    shares: NDArray[np.float64]
    """The share of each token's probability that comes from copying (T,)."""


class TokenOption(NamedTuple):
    """A token with its probability at a position."""

    symbol: str
    probability: float


@dataclass(frozen=True)
class RecordedSearch:
    """A beam search: all candidates and the best hypotheses."""

    candidates: list[Candidate]
    hypotheses: list[Hypothesis]
    symbols: dict[int, str]
    """The symbols of the tokens of candidates, by id."""
    limit: int
    """The maximum length of a hypothesis, without the end symbol."""


@dataclass(frozen=True)
class OutputView:
    """An output or a target of T tokens, including its end symbol."""

    output: tuple[str, ...]
    """The symbols of the tokens."""
    text: str
    log_probabilities: NDArray[np.float64]
    """The log-probability of each token (T,), in nats."""
    options: list[list[TokenOption]]
    """The most probable tokens at each position."""
    alignments: list[Alignment]
    copying: CopyingValues | None
    search: RecordedSearch | None
    """The search that returned the output; None for a target."""

    @property
    def alignment(self) -> NDArray[np.float32] | None:
        """The weights of copying (T, S), or else the mean over the heads of the last layer of attention (T, S)."""
        if self.copying is not None:
            return self.copying.weights
        return self.alignments[-1].weights.mean(0) if self.alignments else None


@torch.inference_mode()
def output_fields(
    models: Sequence[TextModel], sources: Sources, ids: Sequence[int], *, begin_id: int, symbol: Callable[[int], str]
) -> "tuple[dict[str, Any], DecoderValues]":
    """Return fields of an `OutputView` of `ids` for a single source, and the values of the decoder."""
    decoder, state = init_decoding(models, sources, np.array([0]))
    values = _read_decoder(decoder, state, [begin_id, *ids[:-1]], device=device_of(models[0]))
    scores = values.log_probabilities
    best = scores.topk(min(MAX_OPTIONS, scores.shape[1]), dim=1)
    log_probabilities = scores[torch.arange(len(ids)), torch.tensor(ids, device=scores.device)].double().cpu().numpy()
    options = [
        [TokenOption(symbol(id), float(np.exp(log_p))) for id, log_p in zip(*row, strict=True) if log_p > -np.inf]
        for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    fields = {
        "output": tuple(map(symbol, ids)), "log_probabilities": log_probabilities, "options": options,
        "alignments": values.alignments, "copying": None,
    }  # fmt: skip
    return fields, values


class DecoderValues(NamedTuple):
    """The values of a decoder at T steps."""

    log_probabilities: Tensor
    """The log-probabilities of all tokens (T, V)."""
    alignments: list[Alignment]
    copying: tuple[NDArray[np.float32], NDArray[np.float64]] | None
    """The fields `weights` and `generates` of `CopyingValues`."""
    gates: NDArray[np.float64] | None
    """The gates β of attention (T,); None for a model without gates."""


def _read_decoder(decoder: Any, state: State, inputs: Sequence[int], *, device: torch.device) -> DecoderValues:
    attention = attention_taps(decoder)
    copying = [name for name, module in decoder.named_modules() if isinstance(module, CopyingHead)]
    modules = [(name, module) for name, module in decoder.named_modules() if isinstance(module, AttentionBefore)]
    gated = [f"{name}.beta".lstrip(".") for name, module in modules if module.gate is not None]
    without_heads = [*gated, *(f"{name}.{tap}" for name in copying for tap in ("weights", "generates"))]
    taps = [*attention, *without_heads]
    rows: list[Tensor] = []
    watched: AbstractContextManager[dict[str, list[Tensor]]] = watch(decoder, *taps) if taps else nullcontext({})
    with watched as steps:
        for id in inputs:
            scores, state = decoder.step(torch.tensor([id], device=device), state)
            rows.append(scores.log_softmax(-1))
    joined = {  # a tap may have several tensors in a step; only the first is used
        tap: torch.cat(tensors[:: len(tensors) // len(rows)], dim=1 if tap in without_heads else 2)[0]
        for tap, tensors in steps.items()
    }
    pairs = zip(_name_layers(attention), attention, strict=True)
    alignments = [Alignment(name, joined[tap].float().cpu().numpy()) for name, tap in pairs]
    gates = torch.stack([joined[tap] for tap in gated]).mean(0).double().cpu().numpy() if gated else None
    if not copying:
        return DecoderValues(torch.cat(rows), alignments, None, gates)
    weights, generates = (
        torch.stack([joined[f"{name}.{tap}"] for name in copying]).mean(0).cpu() for tap in ("weights", "generates")
    )
    return DecoderValues(torch.cat(rows), alignments, (weights.float().numpy(), generates.double().numpy()), gates)


def _name_layers(taps: Sequence[str]) -> list[str]:
    """Return the name of each tap, such as "layer 1", or "model 2, layer 1" in an ensemble."""
    names: list[str] = []
    counts = Counter[str]()
    for tap in taps:
        model = f"model {int(tap.split('.')[1]) + 1}, " if tap.startswith("models.") else ""
        counts[model] += 1
        names.append(f"{model}layer {counts[model]}")
    return names


@dataclass(frozen=True)
class SequenceView(OutputView):
    """A source of S tokens, including its end symbol, and an output."""

    source: tuple[str, ...]
    traces: list[LayerTrace]
    heads: list[LayerAttention] | None
    """The self-attention of the encoder; None for a source that is too long."""


@torch.inference_mode()
def view_output(
    models: Sequence[TextModel], coder: PairCoder, columns: Sequence[str], sources: Sources, ids: Sequence[int], *,
    text: str, search: RecordedSearch | None,
) -> SequenceView:  # fmt: skip
    """Return the view of an output for a single source. The decoder reads the output token by token."""
    source = sources.rows.padded(np.array([0]))[0].astype(np.int64)
    symbol = symbols_of(coder, columns)
    fields, values = output_fields(models, sources, ids, begin_id=coder.target.begin_id, symbol=symbol)
    if values.copying is not None:
        (weights, generates), probabilities = values.copying, np.exp(fields["log_probabilities"])
        copied = (weights * (source[None] == np.array(ids)[:, None])).sum(1) * (1 - generates)
        shares = np.divide(copied, probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
        fields["copying"] = CopyingValues(weights, generates, shares.clip(0, 1))
    known_ids = np.where(source < coder.source.vocabulary_size, source, coder.source.tokenizer.unknown_id or 0)
    model, device = models[0], device_of(models[0])
    source_ids = torch.tensor(known_ids[None], device=device)
    embedding, encoder = model.readers
    layers = [vectors.batch(np.array([0]), device) for vectors in sources.contextual[0]]
    x = model.features(source_ids, layers) if isinstance(model, EncoderDecoder) else embedding(source_ids)
    return SequenceView(
        **fields, text=text, search=search, traces=trace_layers(encoder, x), heads=record_attention(encoder, x),
        source=tuple(map(symbols_of(coder, columns, is_source=True), source.tolist())),
    )  # fmt: skip
