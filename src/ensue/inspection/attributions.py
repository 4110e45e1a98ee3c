"""Attribution of an output to the inputs: gradients, and integrated gradients along a path from a baseline.

Integrated gradients (Sundararajan, Taly & Yan 2017) follow a straight line from a baseline x' to x:

    a_t = (x_t - x'_t) · ∫₀¹ ∂y/∂x_t (x' + α (x - x')) dα        Σ_t a_t = y(x) - y(x')

The second equation also holds on each interval of the line. Intervals in which the two sides differ most are divided
further. The points of the quadrature are rows of a batch. The gradients of recurrent layers vary strongly along the
line, so that the error of a fixed grid of points is unbounded (docs/log, 2026-11-23).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.inspection.encoder import join_steps
from ensue.inspection.units import Units, build_units, unit_taps
from ensue.interruption import check_interrupted
from ensue.nn import SequenceLayer, watch
from ensue.types import State, to_float64

STATES = {"hidden", "cell", "h", "c", "neurons"}
"""The taps with gradients: states of recurrent layers, and neurons of Transformers."""
NUM_INTERVALS = 8
"""The number of intervals of the line before refinement."""
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(3)
"""The points and weights of Gauss-Legendre quadrature on [-1, 1]."""
TOLERANCE = 0.02
"""The tolerated error, relative to the difference of the outputs, or to 1 if the difference is smaller."""
MAX_CALL_VALUES = 1 << 27
"""The approximate maximum number of activations that one call stores for gradients."""
INTEGRAL_POSITIONS, MIN_INTEGRAL_POINTS = 4_096, 48
"""The approximate number of positions × points on the line for an integral, and the minimum number of points."""

Output = Callable[[Tensor], Tensor]
"""A function from features (B, T, d) to outputs (B,)."""
Array = NDArray[np.float64]


class Attribution(NamedTuple):
    """Integrated gradients `shares` (T,), the outputs at input and baseline, and an error bound of their sum."""

    shares: Array
    value: float
    baseline: float
    error: float

    @property
    def is_exact(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= _tolerance(self.value - self.baseline)


def differentiate(
    layers: SequenceLayer, x: Float[Tensor, "1 T d"], output: Callable[[Tensor], Tensor], state: State = None
) -> tuple[Array, list[Units]]:
    """Return the total derivatives of `output`, a scalar function of the layers' output (1, T, d_out), with respect to
    the inputs (T, d), and to the states at each position (T, d). The layers must be in evaluation mode.
    """
    taps = [name for name in unit_taps(layers) if name.rpartition(".")[2] in STATES]
    leaf = x.detach().requires_grad_()
    watched: AbstractContextManager[dict[str, list[Tensor]]] = watch(layers, *taps) if taps else nullcontext({})
    with torch.enable_grad(), watched as values_at:
        value = output(layers(leaf, state)[0]).sum()
    flat = [leaf, *(tensor for tensors in values_at.values() for tensor in tensors)]
    input_gradient, *others = torch.autograd.grad(value, flat, allow_unused=True, materialize_grads=True)
    gradients = iter(others)
    by_tap = {
        tap: join_steps([next(gradients) for _ in tensors]).float().cpu().numpy() for tap, tensors in values_at.items()
    }
    return _to_array(input_gradient[0]), build_units(by_tap)


def integrated_gradients(output: Output, x: Float[Tensor, "1 T d"], *, rows: int, points: int = 0) -> Attribution:
    """Return the integrated gradients of `output` at x from a baseline of zeros. The model must be in evaluation mode.

    `output` is a function from features (B, T, d) to outputs (B,), and `rows` is the number of points in a batch.
    `points` is the approximate maximum number of points on the line; 0: determined by `INTEGRAL_POSITIONS`.
    """
    line, points = _Line(output, x.detach(), rows), points or max(MIN_INTEGRAL_POINTS, INTEGRAL_POSITIONS // x.shape[1])
    edges = np.linspace(0.0, 1.0, NUM_INTERVALS + 1)
    values = line.values(edges)
    intervals = _Intervals(edges[:-1], edges[1:], values[:-1], values[1:], line.integrals(edges[:-1], edges[1:]))
    used, difference = NUM_INTERVALS * len(POINTS), float(values[-1] - values[0])
    while (max_splits := (points - used) // (2 * len(POINTS))) > 0 and intervals.errors.sum() > _tolerance(difference):
        worst = np.argsort(-intervals.errors)[:max_splits]
        worst = worst[intervals.errors[worst] > _tolerance(difference) / (2 * len(intervals.errors))]
        intervals, used = intervals.split(worst, line), used + 2 * len(POINTS) * len(worst)
    return Attribution(intervals.sums.sum(0), float(values[-1]), float(values[0]), float(intervals.errors.sum()))


class _Line:
    """Outputs and integrals along the line from the baseline of zeros (0) to x (1)."""

    def __init__(self, output: Output, x: Tensor, rows: int) -> None:
        self.output, self.x, self.rows = output, x, max(1, rows)

    def values(self, alphas: Array) -> Array:
        """Return the outputs (N,) at N points."""
        with torch.no_grad():
            return np.concatenate([_to_array(self.output(x)) for x in self._features(alphas)])

    def integrals(self, low: Array, high: Array) -> Array:
        """Return the integrals (N, T) of the gradients over each interval."""
        middle, half = (low + high)[:, None] / 2, (high - low)[:, None] / 2
        slopes = [self._compute_slopes(x) for x in self._features((middle + half * POINTS).ravel())]
        by_interval = np.concatenate(slopes).reshape(len(low), len(POINTS), -1)
        return np.einsum("nk,nkt->nt", half * WEIGHTS, by_interval)

    def _features(self, alphas: Array) -> tuple[Tensor, ...]:
        """Return batches of features at points of the line, from 0 (the baseline) to 1 (x)."""
        rows = torch.from_numpy(alphas).to(self.x).view(-1, 1, 1)
        return tuple(alpha * self.x for alpha in torch.split(rows, self.rows))

    def _compute_slopes(self, x: Tensor) -> Array:
        """Return x · ∂y/∂x_t for each row, (B, T)."""
        check_interrupted()
        leaf = x.requires_grad_()
        with torch.enable_grad():
            value = self.output(leaf).sum()
        if not value.requires_grad:
            return np.zeros(x.shape[:2])
        (gradient,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
        return _to_array((gradient * self.x).sum(-1))


class _Intervals(NamedTuple):
    """Intervals of the line: their ends `low` and `high`, the outputs at both ends, and integrals of the gradients."""

    low: Array
    high: Array
    y_low: Array
    y_high: Array
    sums: Array

    @property
    def errors(self) -> Array:
        return np.abs(self.y_high - self.y_low - self.sums.sum(1))

    def split(self, numbers: NDArray[np.int64], line: _Line) -> "_Intervals":
        """Halve the intervals with these numbers."""
        low, high, y_low, y_high, _ = (column[numbers] for column in self)
        middle = (low + high) / 2
        y_middle = line.values(middle)
        pairs = ((low, middle), (middle, high), (y_low, y_middle), (y_middle, y_high))
        ends = [np.concatenate(pair) for pair in pairs]
        halves = _Intervals._make([*ends, line.integrals(ends[0], ends[1])])
        others = [np.delete(column, numbers, 0) for column in self]
        return _Intervals._make(np.concatenate(pair) for pair in zip(others, halves, strict=True))


def _tolerance(difference: float) -> float:
    return TOLERANCE * max(1.0, abs(difference))


def choose_batch_size(model: nn.Module, length: int) -> int:
    """Return the batch size for rows of this length with which a call stores about MAX_CALL_VALUES activations.

    The number of activations at a position is about the sum of the numbers of rows of all weight matrices.
    """
    stored = sum(parameter.shape[0] for parameter in model.parameters() if parameter.dim() and parameter.requires_grad)
    return max(1, MAX_CALL_VALUES // max(1, stored * length))


def _to_array(values: Tensor) -> Array:
    return to_float64(values.detach()).cpu().numpy()
