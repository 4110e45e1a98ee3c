"""The share of each input in one output: by the gradient there, and by gradients along a path from a baseline.

Integrated gradients (Sundararajan, Taly & Yan 2017) go in a straight line from a baseline x' to x:

    a_t = (x_t - x'_t) · ∫₀¹ ∂y/∂x_t (x' + α (x - x')) dα        Σ_t a_t = y(x) - y(x')

The second equation holds for each part of the line too. So it tells where the sum over points, which are rows of a
batch, is not yet the integral; only there more points are taken. The gradients of recurrent layers are much larger at
some places of the line than at others, and the same points for all are off by any amount (docs/log, 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.inspection.encoder import over_text
from ensue.inspection.units import Units, named, unit_taps
from ensue.interruption import check_interrupted
from ensue.nn import SequenceLayer, watch
from ensue.types import State, exact

STATES = {"hidden", "cell", "h", "c", "neurons"}
"""The kinds of units whose gradients are taken: states of recurrent layers, and the neurons of Transformers."""
PARTS = 8
"""The parts of the line at the beginning."""
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(3)
"""The points of each part, from -1 to 1, and their weights (Gauss and Legendre)."""
TOLERANCE = 0.02
"""The error that is aimed at: a share of the difference of the outputs, or of 1 if that is more."""
CALL_VALUES = 1 << 27
"""About the most values of layers that are held for gradients in a call."""

Output = Callable[[Tensor], Tensor]
"""From features (B, T, d) to one number for each row (B,)."""
Array = NDArray[np.float64]


class Integrated(NamedTuple):
    """Integrated gradients (T,), the output's `value`, that of the `baseline`, and a bound of the sum's error."""

    shares: Array
    value: float
    baseline: float
    error: float

    @property
    def is_exact(self) -> bool:
        """Whether the error is as small as it should be."""
        return self.error <= _tolerance(self.value - self.baseline)


class Gradients(NamedTuple):
    """The gradients of one output by the inputs (T, d), and by the states at each position, as units (T, d)."""

    inputs: Array
    states: list[Units]


def gradients_of(
    layers: SequenceLayer, x: Float[Tensor, "1 T d"], output: Callable[[Tensor], Tensor], state: State = None
) -> Gradients:
    """The total derivatives, over all ways by which an input or a state acts on the output.

    `output` maps what the layers give (1, T, d_out) to one number. The layers should be in evaluation mode.
    """
    taps = [name for name in unit_taps(layers) if name.rpartition(".")[2] in STATES]
    leaf = x.detach().requires_grad_()
    watched: AbstractContextManager[dict[str, list[Tensor]]] = watch(layers, *taps) if taps else nullcontext({})
    with torch.enable_grad(), watched as seen:
        value = output(layers(leaf, state)[0]).sum()
    flat = [leaf, *(tensor for tensors in seen.values() for tensor in tensors)]
    by_leaf, *others = torch.autograd.grad(value, flat, allow_unused=True, materialize_grads=True)
    found = iter(others)
    by_tap = {tap: over_text([next(found) for _ in tensors]).float().cpu().numpy() for tap, tensors in seen.items()}
    return Gradients(_array(by_leaf[0]), named(by_tap))


def integrated_gradients(
    output: Output, x: Float[Tensor, "1 T d"], baseline: Float[Tensor, "1 T d"] | None = None, *, points: int, rows: int
) -> Integrated:
    """The integrated gradients of `output` at x, from a baseline of zeros unless it is given.

    At most about so many `points` of the line are computed, and so many `rows` in a call. The model should be in
    evaluation mode.
    """
    line = _Line(output, x.detach(), torch.zeros_like(x) if baseline is None else baseline.detach(), rows)
    edges = np.linspace(0.0, 1.0, PARTS + 1)
    values = line.values(edges)
    parts = _Parts(edges[:-1], edges[1:], values[:-1], values[1:], line.integrals(edges[:-1], edges[1:]))
    used, difference = PARTS * len(POINTS), float(values[-1] - values[0])
    while (room := (points - used) // (2 * len(POINTS))) > 0 and parts.errors.sum() > _tolerance(difference):
        worst = np.argsort(-parts.errors)[:room]
        worst = worst[parts.errors[worst] > _tolerance(difference) / (2 * len(parts.errors))]
        parts, used = parts.split(worst, line), used + 2 * len(POINTS) * len(worst)
    return Integrated(parts.sums.sum(0), float(values[-1]), float(values[0]), float(parts.errors.sum()))


class _Line:
    """Outputs and integrals along the line from the baseline (0) to x (1)."""

    def __init__(self, output: Output, x: Tensor, baseline: Tensor, rows: int) -> None:
        self.output, self.baseline, self.way, self.rows = output, baseline, x - baseline, max(1, rows)

    def values(self, places: Array) -> Array:
        """The outputs (N,) at N places."""
        with torch.no_grad():
            return np.concatenate([_array(self.output(x)) for x in self._features(places)])

    def integrals(self, low: Array, high: Array) -> Array:
        """For each part of the line (N,) what it adds to the shares, (N, T)."""
        middle, half = (low + high)[:, None] / 2, (high - low)[:, None] / 2
        slopes = [self._slopes(x) for x in self._features((middle + half * POINTS).ravel())]
        of_points = np.concatenate(slopes).reshape(len(low), len(POINTS), -1)
        integrals: Array = np.einsum("nk,nkt->nt", half * WEIGHTS, of_points)
        return integrals

    def _features(self, places: Array) -> tuple[Tensor, ...]:
        rows = torch.from_numpy(places).to(self.way).view(-1, 1, 1)
        return tuple(self.baseline + some * self.way for some in torch.split(rows, self.rows))

    def _slopes(self, x: Tensor) -> Array:
        """(x - x') · ∂y/∂x_t for each row, (B, T)."""
        check_interrupted()
        leaf = x.requires_grad_()
        with torch.enable_grad():
            value = self.output(leaf).sum()
        if not value.requires_grad:
            return np.zeros(x.shape[:2])
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
        return _array((gradient * self.way).sum(-1))


class _Parts(NamedTuple):
    """Parts of the line: their ends, the outputs there, and what they add to the shares."""

    low: Array
    high: Array
    before: Array
    after: Array
    sums: Array

    @property
    def errors(self) -> Array:
        errors: Array = np.abs(self.after - self.before - self.sums.sum(1))
        return errors

    def split(self, which: NDArray[np.int64], line: _Line) -> _Parts:
        """These parts, with some halved."""
        low, high, before, after, _ = (part[which] for part in self)
        middle = (low + high) / 2
        between = line.values(middle)
        ends = [np.concatenate(pair) for pair in ((low, middle), (middle, high), (before, between), (between, after))]
        halves = _Parts._make([*ends, line.integrals(ends[0], ends[1])])
        kept = [np.delete(part, which, 0) for part in self]
        return _Parts._make(np.concatenate(pair) for pair in zip(kept, halves, strict=True))


def _tolerance(difference: float) -> float:
    return TOLERANCE * max(1.0, abs(difference))


def rows_together(model: nn.Module, length: int) -> int:
    """How many rows of that length a call may have: a position holds about as many values as the weights have rows."""
    held = sum(parameter.shape[0] for parameter in model.parameters() if parameter.dim() and parameter.requires_grad)
    return max(1, CALL_VALUES // max(1, held * length))


def _array(values: Tensor) -> Array:
    return exact(values.detach()).cpu().numpy()
