"""Numbers about an encoder–decoder: attention, copying, the search (`page.py` and `search_page.py` draw it)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Pair
from ensue.decode.beam import attention_taps
from ensue.decode.candidates import Candidate
from ensue.decode.hypotheses import Hypothesis
from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.models.encoder_decoder import EncoderDecoder, TextModel, right_shifted
from ensue.models.modules import device_of, evaluating
from ensue.nn import AttentionBefore, CopyingHead, joined_steps, watch
from ensue.tasks.sequence_to_sequence.decoding import begin
from ensue.tasks.sequence_to_sequence.outputs import Output, Symbols, TokenAlignment
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, Sources
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.types import State

ROWS, TOKENS = 32, 4_096
"""The most pairs, and the most tokens of them, that are read together. Watched attention keeps all its weights."""


def alignment_tap(model: nn.Module) -> str | None:
    """The tap of what a model looks at: a copying head, else the last layer that attends to the source; or None."""
    copying = [f"{name}.weights" for name, part in model.named_modules() if isinstance(part, CopyingHead)]
    return next(reversed([*attention_taps(model), *copying]), None)


def align(
    model: TextModel,
    coder: PairCoder,
    answers: Sequence[tuple[Pair, Output]],
    sources: Sources,
) -> list[TokenAlignment | None]:
    """The alignment of each output with its source; None for a model without attention."""
    found: list[TokenAlignment | None] = [None] * len(answers)
    tap = alignment_tap(model)
    if tap is None:
        return found
    targets = Ragged.of(np.array([*output.ids, coder.target.end_id]) for _, output in answers)
    pairs = EncodedPairs(sources.rows, targets, sources.contextual[0])
    for rows in by_length(pairs.lengths, batch_size=ROWS, batch_tokens=TOKENS):
        for row, places in zip(rows.tolist(), _places(model, tap, pairs, rows, coder.target.begin_id), strict=True):
            (pair, output), (source,) = answers[row], sources.rows.padded(np.array([row])).tolist()
            read, written = Symbols(coder, pair.sources, is_source=True), Symbols(coder, pair.sources)
            found[row] = TokenAlignment(
                tuple(map(read.of, source)), tuple(map(written.of, output.ids)), tuple(places[: len(output.ids)])
            )
    return found


@torch.inference_mode()
def _places(model: TextModel, tap: str, pairs: EncodedPairs, rows: NDArray[np.int64], begin_id: int) -> list[list[int]]:
    """For each token of the targets in these rows the place of the source token with the most attention."""
    batch = pairs.batch(rows, device_of(model))
    with evaluating(model), watch(model, tap) as seen:
        state = model.begin(batch.sources, batch.source_mask, batch.contextual)
        model.nats(right_shifted(batch.targets, begin_id), batch.targets, state)
    places: list[list[int]] = joined_steps(seen[tap], batch.targets.shape[1]).argmax(2).tolist()
    return places


MOST_OPTIONS = 5
"""Tokens that are listed for each position."""


class Alignment(NamedTuple):
    """The weights (H, T, S) of a layer that attends to the source; row t is what token t looks at."""

    name: str
    weights: NDArray[np.float32]


class Copying(NamedTuple):
    """A head's copying: weights (T, S), the probability (T,) of generating, copying's share (T,) of each token."""

    weights: NDArray[np.float32]
    generates: NDArray[np.float64]
    shares: NDArray[np.float64]


class Option(NamedTuple):
    """A token that could stand at a position, with its probability."""

    symbol: str
    probability: float


@dataclass(frozen=True)
class Search:
    """A beam search: all continuations that were considered, and the best hypotheses."""

    candidates: list[Candidate]
    hypotheses: list[Hypothesis]
    symbols: dict[int, str]
    """The texts of the candidates' tokens."""
    limit: int
    """The most tokens of a hypothesis, without the end."""


@dataclass(frozen=True)
class OutputView:
    """An output of T tokens with its end: `log_probabilities` (T,) in nats; `search` is None if it was given."""

    output: tuple[str, ...]
    text: str
    log_probabilities: NDArray[np.float64]
    options: list[list[Option]]
    alignments: list[Alignment]
    copying: Copying | None
    search: Search | None

    @property
    def alignment(self) -> NDArray[np.float32] | None:
        """The attention of each token (T, S): the mean of the heads of the last layer, or the weights of copying."""
        if self.copying is not None:
            return self.copying.weights
        return self.alignments[-1].weights.mean(0) if self.alignments else None


@torch.inference_mode()
def output_parts(
    models: Sequence[TextModel],
    sources: Sources,
    ids: Sequence[int],
    *,
    begin_id: int,
    symbol: Callable[[int], str],
) -> tuple[dict[str, Any], Seen]:
    """The fields of an `OutputView` of `ids`, written token by token for the only source; and what is seen."""
    stepper, state = begin(models, sources, np.array([0]))
    seen = _written(stepper, state, [begin_id, *ids[:-1]], device=device_of(models[0]))
    scores = seen.log_probabilities
    best = scores.topk(min(MOST_OPTIONS, scores.shape[1]), dim=1)
    chosen = scores[torch.arange(len(ids)), torch.tensor(ids, device=scores.device)].double().cpu().numpy()
    options = [
        [Option(symbol(id), float(np.exp(log_p))) for id, log_p in zip(*row, strict=True) if log_p > -np.inf]
        for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    parts = {
        "output": tuple(map(symbol, ids)), "log_probabilities": chosen, "options": options,
        "alignments": seen.alignments, "copying": None,
    }  # fmt: skip
    return parts, seen


class Seen(NamedTuple):
    """A decoder while it writes: log-probabilities (T, V), attention, weights of copying, gate β (T,) on attention."""

    log_probabilities: Tensor
    alignments: list[Alignment]
    copying: tuple[NDArray[np.float32], NDArray[np.float64]] | None
    gates: NDArray[np.float64] | None


def _written(stepper: Any, state: State, inputs: Sequence[int], *, device: torch.device) -> Seen:
    """The values of the decoder while it reads these tokens."""
    attention = attention_taps(stepper)
    copying = [name for name, part in stepper.named_modules() if isinstance(part, CopyingHead)]
    before = [(name, part) for name, part in stepper.named_modules() if isinstance(part, AttentionBefore)]
    gated = [f"{name}.beta".lstrip(".") for name, part in before if part.gate is not None]
    ungrouped = [*gated, *(f"{name}.{tap}" for name in copying for tap in ("weights", "generates"))]  # without heads
    taps = [*attention, *ungrouped]
    rows: list[Tensor] = []
    watched: AbstractContextManager[dict[str, list[Tensor]]] = watch(stepper, *taps) if taps else nullcontext({})
    with watched as seen:
        for id in inputs:
            scores, state = stepper.step(torch.tensor([id], device=device), state)
            rows.append(scores.log_softmax(-1))
    whole = {
        tap: torch.cat(found[:: len(found) // len(rows)], dim=1 if tap in ungrouped else 2)[0]
        for tap, found in seen.items()
    }
    alignments = [
        Alignment(name, whole[tap].float().cpu().numpy())
        for name, tap in zip(_names(attention), attention, strict=True)
    ]
    gates = torch.stack([whole[tap] for tap in gated]).mean(0).double().cpu().numpy() if gated else None
    if not copying:
        return Seen(torch.cat(rows), alignments, None, gates)
    weights, generates = (
        torch.stack([whole[f"{name}.{tap}"] for name in copying]).mean(0).cpu() for tap in ("weights", "generates")
    )
    return Seen(torch.cat(rows), alignments, (weights.float().numpy(), generates.double().numpy()), gates)


def _names(taps: Sequence[str]) -> list[str]:
    """Layers are numbered from 1, in each model of an ensemble."""
    found: list[str] = []
    counts: dict[str, int] = {}
    for tap in taps:
        model = f"model {int(tap.split('.')[1]) + 1}, " if tap.startswith("models.") else ""
        counts[model] = counts.get(model, 0) + 1
        found.append(f"{model}layer {counts[model]}")
    return found


@dataclass(frozen=True)
class SequenceView(OutputView):
    """A source of S tokens and an output, whose ends are tokens too."""

    source: tuple[str, ...]
    traces: list[Trace]
    heads: list[Attention] | None
    """The attention inside of the encoder; None for a source that is too long."""


@torch.inference_mode()
def view_output(
    models: Sequence[TextModel],
    coder: PairCoder,
    columns: Sequence[str],
    sources: Sources,
    ids: Sequence[int],
    *,
    text: str,
    search: Search | None,
) -> SequenceView:
    """The view of the output `ids` for the only one of `sources`, which is written token by token, as a search does."""
    source = sources.rows.padded(np.array([0]))[0].astype(np.int64)
    reader, writer = Symbols(coder, columns, is_source=True), Symbols(coder, columns)
    parts, seen = output_parts(models, sources, ids, begin_id=coder.target.begin_id, symbol=writer.of)
    if seen.copying is not None:
        (weights, generates), probabilities = seen.copying, np.exp(parts["log_probabilities"])
        copied = (weights * (source[None] == np.array(ids)[:, None])).sum(1) * (1 - generates)
        shares = np.divide(copied, probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
        parts["copying"] = Copying(weights, generates, shares.clip(0, 1))
    known = np.where(source < coder.source.vocabulary_size, source, coder.source.tokenizer.unknown_id or 0)
    model, device = models[0], device_of(models[0])
    read = torch.tensor(known[None], device=device)
    embedding, encoder = model.readers
    layers = [part.batch(np.array([0]), device) for part in sources.contextual[0]]
    x = model.features(read, layers) if isinstance(model, EncoderDecoder) else embedding(read)
    return SequenceView(
        **parts, text=text, search=search, source=tuple(map(reader.of, source.tolist())),
        traces=traces_of(encoder, x), heads=attention_of(encoder, x),
    )  # fmt: skip
