"""Batched beam search over any model with a `step`.

score = Σ ln P / length^α + coverage penalty (Wu et al. 2016). After each token the search keeps the `width` best
continuations of the hypotheses of an input, and moves complete hypotheses to the n-best list. An input is done when it
has no live hypothesis, or when it has `n_best` complete hypotheses and no live hypothesis can exceed the worst of them.
Log-probabilities only decrease, so a live hypothesis scores at most ln P / (largest length)^α (Huang et al. 2017). See
`docs/beam-search.md`.
"""

import ctypes
import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.decode.candidates import Candidate
from ensue.decode.frontier import Frontier
from ensue.decode.search import NOT_FINITE, BeamSearch, Hypothesis, Phrase, check_ids
from ensue.engine import may_compile
from ensue.engine.c_library import library
from ensue.engine.storage import address
from ensue.errors import EnsueError
from ensue.interruption import check_interrupted
from ensue.models.modules import evaluating
from ensue.nn import CopyingHead
from ensue.nn.attention.cross import CrossAttention, iterate_sources
from ensue.nn.taps import watch
from ensue.types import State, at_least_float32, compacted, select_rows
from ensue.version import package_text

MIN_ATTENTION = 1e-38
"""The lower bound of attention weights before the logarithm."""


class Coverage:
    """A wrapper of a model that accumulates the attention of each row to the positions of its source.

    The attention of a step is the mean over all heads of all `CrossAttention` layers and models. Raises EnsueError
    without such layers.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.taps = attention_taps(model) if isinstance(model, nn.Module) else []
        if not self.taps:
            raise EnsueError("the coverage penalty needs a model that attends to a source")

    def step(self, ids: Tensor, state: State, before: Tensor | None) -> tuple[Tensor, State, Float[Tensor, "R S"]]:
        """Read one token in each row. Return the scores, the state, and the attention accumulated since the start."""
        with watch(self.model, *self.taps) as seen:
            scores, state = self.model.step(ids, state)
        weights = torch.stack([values[-1][:, :, -1].mean(1) for values in seen.values()]).mean(0)
        return scores, state, weights if before is None else before + weights


def attention_taps(model: nn.Module) -> list[str]:
    """Return the names of the taps of attention weights to a source, without the taps of copying heads."""
    heads = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, CopyingHead))
    layers = (name for name, module in model.named_modules() if isinstance(module, CrossAttention))
    return [f"{name}.weights".lstrip(".") for name in layers if not f"{name}.".startswith(heads)]


class Stepper(Protocol):
    """The interface of models for beam search: language models, encoder–decoders, ensembles."""

    def step(self, ids_t: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Read one token in each row. Return logits or log-probabilities of the next token, and the new state."""


def beam_search(
    model: Stepper, state: State, starts: Int[Tensor, " B"], *, end_id: int | None, search: BeamSearch,
    prefixes: Sequence[Sequence[int]] | None = None, max_tokens: Sequence[int] | None = None,
    required: Sequence[Sequence[Phrase]] | None = None, forbidden: Sequence[Sequence[Phrase]] | None = None,
    record: list[Candidate] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """Return the best hypotheses of B inputs: at most `n_best` for each input, the best first.

    Complete hypotheses come first. If there are fewer than `n_best`, incomplete hypotheses follow. The hypotheses of an
    input do not depend on the other inputs, up to rounding.

    Args:
        model: The model.
        state: The state of the model, with a row for each input.
        starts: The first token that the model reads for each input, such as the start symbol.
        end_id: The end symbol; None: all hypotheses have `max_tokens` tokens.
        search: The settings of the search.
        prefixes: For each input, the first tokens of its hypotheses.
        max_tokens: For each input, the maximum number of tokens.
        required: For each input, required phrases in addition to those of `search`.
        forbidden: For each input, forbidden phrases in addition to those of `search`.
        record: A list to which all candidates and their outcomes are appended.

    Raises:
        EnsueError: The constraints contradict each other, or scores are not finite.
    """
    count = len(starts)
    constraints = (
        prefixes or [()] * count, max_tokens or [search.max_tokens] * count, required or [()] * count,
        forbidden or [()] * count,
    )  # fmt: skip
    assert {len(values) for values in constraints} == {count}, "constraints for another number of inputs"
    input_constraints = [search.for_input(*values) for values in zip(*constraints, strict=True)]
    if not input_constraints:
        return []
    frontier = Frontier(search, input_constraints, end_id, record)
    with torch.inference_mode(), evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        return _search(model, state, starts, frontier)


def _search(model: Stepper, state: State, ids: Tensor, frontier: Frontier) -> list[list[Hypothesis]]:
    search, attention, penalties, compiled = frontier.search, None, None, None
    coverage = Coverage(model) if search.coverage_penalty else None
    while True:
        check_interrupted()
        if coverage is None:
            scores, state = model.step(ids, state)
        else:
            scores, state, attention = coverage.step(ids, state, attention)
            source, rows = next(iterate_sources(state))  # Σ_i ln min(Σ_t a_ti, 1) over real positions (Wu et al. 2016)
            logarithms = attention.cpu().double().clamp(MIN_ATTENTION, 1).log()
            penalties = search.coverage_penalty * logarithms.where(source.real[rows].cpu(), 0.0).sum(1).numpy()
        is_log_p = getattr(model, "returns_log_probabilities", False)
        log_p = scores if is_log_p else scores.log_softmax(-1, dtype=at_least_float32(scores.dtype))
        if frontier.length == 1 and compiled is None:
            check_ids(frontier.constraints, log_p.shape[1], frontier.end_id)
            compiled = CompiledFrontier.of(frontier, log_p)
        rows, ids = compiled.advance(log_p) if compiled else _advance(frontier, log_p, penalties)
        if not len(rows):
            return (compiled or frontier).results()
        state, attention = select_rows((state, attention), rows)
        if len(rows) < len(log_p):
            state = compacted(state)  # frees the memory of sources whose input is done


def _advance(frontier: Frontier, log_p: Tensor, penalties: NDArray[np.float64] | None) -> tuple[Tensor, Tensor]:
    """Return the parent rows and the last ids of the live hypotheses."""
    _block_tokens(log_p, frontier)
    options, values = continuations(log_p, frontier.search.width, frontier.required_ids())
    if np.isnan(values).any():
        raise EnsueError(NOT_FINITE)
    return _to_device(frontier.advance(options, values, penalties), log_p)


def _block_tokens(log_p: Float[Tensor, "R V"], frontier: Frontier) -> None:
    """Set the scores of blocked tokens to -∞, in place."""
    forced, forced_values = frontier.forced_tokens(), None
    if forced is not None:
        forced_cells = _to_device(forced, log_p)
        forced_values = log_p[forced_cells]
    if len(always := frontier.forbidden.always):
        log_p.index_fill_(1, torch.from_numpy(always).to(log_p.device), -math.inf)
    for blocked in frontier.blocked_tokens():
        log_p[_to_device(blocked, log_p)] = -math.inf
    if forced_values is not None:
        log_p[forced_cells[0]] = -math.inf
        log_p[forced_cells] = forced_values


def _to_device(arrays: tuple[NDArray[np.int64], NDArray[np.int64]], like: Tensor) -> tuple[Tensor, Tensor]:
    rows, ids = (torch.from_numpy(array).to(like.device) for array in arrays)
    return rows, ids


def best_ids(scores: Float[Tensor, "R V"], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the ids (R, k) of the `k` largest scores of each row, in ascending order of ids, and these scores.

    A vocabulary with fewer than `k` tokens is returned completely.
    """
    size = scores.shape[1]
    if size <= k:
        return np.broadcast_to(np.arange(size), scores.shape), scores.double().cpu().numpy()
    values, ids = (array.cpu().numpy() for array in scores.topk(k + 1))
    values = values.astype(np.float64)
    tied = (values[:, k - 1] == values[:, k]) & (values[:, k] > -math.inf)
    for row in np.flatnonzero(tied):  # torch does not define which of equal scores it returns
        ids[row, :k] = scores[row].sort(descending=True, stable=True).indices[:k].cpu().numpy()
        values[row, :k] = scores[row][ids[row, :k]].cpu().numpy()
    order = ids[:, :k].argsort(1)
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


def continuations(
    log_p: Float[Tensor, "R V"], k: int, required: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the candidates (R, M) of each row, in ascending order of ids, and their log-probabilities.

    The candidates are all `required` ids (R, A), which may be padded with -1, and the `k` best other ids. `log_p` is
    changed in place.
    """
    if not required.shape[1]:
        return best_ids(log_p, k)
    rows, columns = np.nonzero(required >= 0)
    cells = _to_device((rows, required[rows, columns]), log_p)
    extra = np.full(required.shape, -math.inf)
    extra[rows, columns] = log_p[cells].double().cpu().numpy()
    log_p[cells] = -math.inf
    ids, values = best_ids(log_p, k)
    ids, values = np.concatenate((ids, required), 1), np.concatenate((values, extra), 1)
    order = ids.argsort(1, kind="stable")
    return np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)


RESULT = np.dtype([("score", float), ("total", float), ("length", np.int64), ("row", np.int64), ("last", np.int64)])
"""A hypothesis in beam.c."""


@cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the functions of beam.c for a type; None without a compiler."""
    functions = library(package_text("decode/beam.c"), dtype)
    if functions is not None:
        functions.advance.restype = ctypes.c_int64
        functions.advance.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_double] * 2 + [ctypes.c_void_p] * 2
    return functions


class CompiledFrontier:
    """A `Frontier` in C (beam.c). The tokens of hypotheses are read at the end from the parents and ids of steps."""

    def __init__(self, frontier: Frontier, size: int, dtype: torch.dtype, functions: ctypes.CDLL) -> None:
        search, count, self.dtype, self.size = frontier.search, len(frontier.constraints), dtype, size
        self.width, self.frontier, self.rows, self._advance = search.width, frontier, count, functions.advance
        self.steps = list[Tensor]()
        self.best, self.rankings = np.zeros((2, count, search.n_best), RESULT), np.zeros((2, count, 2), np.int64)
        self.rankings[..., 1] = self.best.ctypes.data + self.best.strides[1] * np.arange(2 * count).reshape(2, -1)
        totals, chosen = np.zeros((2, count * search.width)), np.empty((search.width, 3))
        counts, live = np.empty(count, np.int64), np.arange(count)
        self._arrays: list[NDArray[Any]] = [frontier.forbidden.always, frontier.limits, frontier.penalties]
        self._arrays += live, counts, totals, totals[1], chosen, *self.rankings
        end = -1 if frontier.end_id is None else frontier.end_id
        sizes = search.width, search.n_best, size, end, search.min_tokens, len(frontier.forbidden.always), 1, count, 1
        self._state = np.array([*sizes, *(array.ctypes.data for array in self._arrays)], np.int64)

    @classmethod
    def of(cls, frontier: Frontier, log_p: Tensor) -> "CompiledFrontier | None":
        """Return the frontier for a first step with these scores; None for constraints that beam.c lacks."""
        search, dtype, size = frontier.search, log_p.dtype, log_p.shape[1]
        has_phrases = frontier.prefixes.size or frontier.required.count or frontier.forbidden.groups
        is_plain = not (has_phrases or search.no_repeat_ngram or search.coverage_penalty or frontier.record is not None)
        fits = log_p.is_cpu and dtype in (torch.float32, torch.float64) and (frontier.end_id or 0) < size
        functions = load_library(dtype) if is_plain and fits and may_compile() else None
        return None if functions is None else cls(frontier, size, dtype, functions)

    def advance(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parent rows and the last ids of the live hypotheses. `log_p` (R, V) is changed in place."""
        log_p, length = log_p.contiguous(), len(self.steps) + 1
        scores = address("scores", log_p, self.dtype, (self.rows, self.size))
        step = torch.empty(2, int(self._state[7]) * self.width, dtype=torch.int64)
        parents, ids = step.unbind()
        divisors = self.frontier.length_penalty(length), self.frontier.length_penalty(length - 1)
        self.rows = self._advance(self._state.ctypes.data, scores, *divisors, parents.data_ptr(), ids.data_ptr())
        if self.rows < 0:
            raise EnsueError(NOT_FINITE)
        self.steps.append(step)
        return parents[: self.rows], ids[: self.rows]

    def results(self) -> list[list[Hypothesis]]:
        """Return the `n_best` hypotheses of each input, complete ones first."""
        steps = [step.tolist() for step in self.steps]
        results: list[list[Hypothesis]] = [[] for _ in self.best[0]]
        n_best = self.frontier.search.n_best
        for is_complete, best, rankings in zip((True, False), self.best, self.rankings, strict=True):
            for hypotheses, of_input, (count, _) in zip(results, best, rankings.tolist(), strict=True):
                for score, total, length, row, last in of_input[: min(count, n_best - len(hypotheses))].tolist():
                    ids, parent = [last] if last >= 0 else [], row
                    for parents, of_step in reversed(steps[:length]):
                        ids.append(of_step[parent])
                        parent = parents[parent]
                    hypotheses.append(Hypothesis(tuple(ids[::-1]), score, total, is_complete))
        return results
