"""Beam search over any model that can step, for many inputs at once.

score = Σ ln P / length^α + coverage penalty (Wu et al. 2016). After each token the `width` best continuations of all
hypotheses of an input are kept. Those among them that end are set aside, the others go on. An input is done when it has
`n_best` ended hypotheses and none that goes on can exceed the last of them: its log-probability can only fall, so its
score stays below that log-probability / (longest length allowed)^α (Huang et al. 2017). `docs/beam-search.md` explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.decode.candidates import Candidate
from ensue.decode.frontier import Frontier
from ensue.decode.hypotheses import Hypothesis, Phrase
from ensue.decode.search import BeamSearch, check_ids
from ensue.errors import EnsueError
from ensue.interruption import check_interrupted
from ensue.models.modules import evaluating
from ensue.nn import CopyingHead
from ensue.nn.attention.cross import CrossAttention, sources_in
from ensue.nn.taps import watch
from ensue.types import State, at_least_float32, compacted, select_rows

SMALLEST = 1e-38
"""The least attention of which a logarithm is taken."""


class Coverage:
    """Steps a model, and adds up the attention of each row to the positions of its source.

    The attention of a step is the mean over the heads of all `CrossAttention` in the model, in all models of an
    ensemble. Raises EnsueError for a model that has none.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.taps = attention_taps(model) if isinstance(model, nn.Module) else []
        if not self.taps:
            raise EnsueError("the coverage penalty needs a model that attends to a source")

    def step(self, ids: Tensor, state: State, so_far: Tensor | None) -> tuple[Tensor, State, Float[Tensor, "R S"]]:
        """The scores and the state after one more token, and the attention after it."""
        with watch(self.model, *self.taps) as seen:
            scores, state = self.model.step(ids, state)
        weights = torch.stack([found[-1][:, :, -1].mean(1) for found in seen.values()]).mean(0)
        return scores, state, weights if so_far is None else so_far + weights


def attention_taps(model: nn.Module) -> list[str]:
    """The names of the weights of all layers that attend to a source; a head that copies has weights of its own."""
    heads = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, CopyingHead))
    found = ((f"{name}.weights".lstrip("."), part) for name, part in model.named_modules())
    return [name for name, part in found if isinstance(part, CrossAttention) and not name.startswith(heads)]


def covered(attention: Float[Tensor, "R S"], state: State) -> NDArray[np.float64]:
    """Σ_i ln min(Σ_t a_ti, 1) of each row, over the real positions of its source (Wu et al. 2016, eq. 14)."""
    source, rows = next(sources_in(state))
    logarithms = attention.cpu().double().clamp(SMALLEST, 1).log()
    found: NDArray[np.float64] = logarithms.where(source.real[rows].cpu(), 0.0).sum(1).numpy()
    return found


class Stepper(Protocol):
    """The interface of models that can be searched: a language model, an encoder-decoder, an ensemble.

    The scores are logits or log-probabilities of the next token.
    """

    def step(self, ids_t: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """The scores of the next token after one more token in each row, and the state after it."""


def beam_search(
    model: Stepper, state: State, starts: Int[Tensor, " B"], *, end_id: int | None, search: BeamSearch,
    prefixes: Sequence[Sequence[int]] | None = None, max_tokens: Sequence[int] | None = None,
    required: Sequence[Sequence[Phrase]] | None = None, forbidden: Sequence[Sequence[Phrase]] | None = None,
    record: list[Candidate] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best hypotheses of B inputs, for each input at most `n_best`, the best first.

    `state` has a row for each input, and `starts` are the ids that are read first. Each input may have a prefix, which
    its hypotheses begin with, a `max_tokens` and more `required` and `forbidden` phrases of its own. Without an
    `end_id`, hypotheses have `max_tokens` tokens.

    Each continuation that was considered is added to `record`, with what became of it.

    Complete hypotheses come first; if there are fewer than `n_best`, incomplete ones follow. The result does not depend
    on the other inputs, up to the rounding of the model. Raises EnsueError for demands that cannot be met, and for
    scores that are not finite.
    """
    count = len(starts)
    demands = (
        prefixes or [()] * count, max_tokens or [search.max_tokens] * count, required or [()] * count,
        forbidden or [()] * count,
    )  # fmt: skip
    assert {len(of_inputs) for of_inputs in demands} == {count}, "demands of another number of inputs"
    searches = [search.for_input(*of_input) for of_input in zip(*demands, strict=True)]
    if not searches:
        return []
    frontier = Frontier(search, searches, end_id, record)
    with torch.inference_mode(), evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        _search(model, state, starts, frontier)
    return frontier.results()


def _search(model: Stepper, state: State, ids: Tensor, frontier: Frontier) -> None:
    """Steps the model from `state` and `ids` until the frontier is empty."""
    search, attention, bonuses = frontier.search, None, None
    coverage = Coverage(model) if search.coverage_penalty else None
    while True:
        check_interrupted()
        if coverage is None:
            scores, state = model.step(ids, state)
        else:
            scores, state, attention = coverage.step(ids, state, attention)
            bonuses = search.coverage_penalty * covered(attention, state)
        log_p = scores.log_softmax(-1, dtype=at_least_float32(scores.dtype))
        _block(log_p, frontier)
        options, values = continuations(log_p, search.width, frontier.wanted())
        if np.isnan(values).any():
            raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
        inputs = len(frontier.live.inputs)
        rows, ids = (torch.from_numpy(part).to(ids.device) for part in frontier.advance(options, values, bonuses))
        if not len(rows):
            return
        state, attention = select_rows((state, attention), rows)
        if len(frontier.live.inputs) < inputs:
            state = compacted(state)  # what only they attended to


def _block(log_p: Float[Tensor, "R V"], frontier: Frontier) -> None:
    """Gives -∞ to what may not be the next token, in place."""
    if frontier.length == 1:
        check_ids(frontier.searches, log_p.shape[1], frontier.end_id)
    forced, kept = frontier.forced(), None
    if forced is not None:
        at = _at(forced, log_p)
        kept = log_p[at]
    if len(always := frontier.forbidden.always):
        log_p.index_fill_(1, torch.from_numpy(always).to(log_p.device), -math.inf)
    for blocked in frontier.blocked():
        log_p[_at(blocked, log_p)] = -math.inf
    if kept is not None:
        log_p[at[0]] = -math.inf
        log_p[at] = kept


def _at(place: tuple[NDArray[np.int64], NDArray[np.int64]], log_p: Tensor) -> tuple[Tensor, Tensor]:
    rows, ids = (torch.from_numpy(part).to(log_p.device) for part in place)
    return rows, ids


CHUNK = 64
"""The best k scores stand in the k chunks with the largest maxima. Maxima are found 10 times as fast as the best k."""


def best_ids(scores: Float[Tensor, "R V"], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids (R, k) of the `k` largest scores of each row (all, if there are fewer), ascending, and the scores."""
    size = scores.shape[1]
    if size <= k:
        return np.broadcast_to(np.arange(size), scores.shape), scores.double().cpu().numpy()
    if k == 1 and scores.is_cpu:  # of equal ones numpy takes the first
        best = scores.numpy()
        ids = best.argmax(1)[:, None]
        return ids, np.take_along_axis(best, ids, 1).astype(np.float64)
    found = [part.cpu().numpy() for part in _largest(scores, k + 1)]
    values, ids = found[0].astype(np.float64), found[1]
    tied = (values[:, k - 1] == values[:, k]) & (values[:, k] > -math.inf)
    for row in np.flatnonzero(tied):  # torch says nothing of which of them it takes
        ids[row, :k] = scores[row].sort(descending=True, stable=True).indices[:k].cpu().numpy()
        values[row, :k] = scores[row][ids[row, :k]].cpu().numpy()
    order = ids[:, :k].argsort(1)
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


def continuations(
    log_p: Float[Tensor, "R V"], k: int, wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ids (R, M) that may follow each row, ascending, and their log-probabilities: the `k` best, and the `wanted`.

    Of `wanted` (R, A), which may be padded with -1, all are there, and the `k` best others. `log_p` is written to.
    """
    if not wanted.shape[1]:
        return best_ids(log_p, k)
    rows, places = np.nonzero(wanted >= 0)
    at = torch.from_numpy(rows).to(log_p.device), torch.from_numpy(wanted[rows, places]).to(log_p.device)
    extra = np.full(wanted.shape, -math.inf)
    extra[rows, places] = log_p[at].double().cpu().numpy()
    log_p[at] = -math.inf
    ids, values = best_ids(log_p, k)
    ids, values = np.concatenate((ids, wanted), 1), np.concatenate((values, extra), 1)
    order = ids.argsort(1, kind="stable")
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest scores of each row, the largest first, and their ids; of equal ones any."""
    rows, size = scores.shape
    chunks = size // CHUNK
    if chunks < 2 * k:
        values, ids = scores.topk(k)
        return values, ids
    within = chunks * CHUNK
    chosen = scores[:, :within].view(rows, chunks, CHUNK).amax(2).topk(k, sorted=False).indices
    columns = torch.arange(size, device=scores.device)
    ids = (chosen.unsqueeze(2) * CHUNK + columns[:CHUNK]).flatten(1)
    ids = torch.cat((ids, columns[within:].expand(rows, -1)), dim=1)
    values, places = scores.gather(1, ids).topk(k)
    return values, ids.gather(1, places)
