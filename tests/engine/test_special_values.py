"""Every operation of the engine equals torch for NaN, infinities, signed zeros, and tiny and large numbers."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.twins import needs_compiler
from ensue.engine import Execution, aten, executing, explain
from ensue.engine.aten import HANDLERS
from ensue.engine.graph import OPERATIONS
from ensue.nn import Recurrent
from ensue.types import Memory, State

NAN, INF = float("nan"), float("inf")
VALUES = (
    NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30, 88.8, -88.8, 104.0, -104.0, 3e-8, -3e-8,
    1.0, -1.0, 2.5, -2.5, 20.0, -20.0, 6.0, 0.5,
)  # fmt: skip
N = len(VALUES)
Operation = Callable[..., Tensor]


def choice_by(condition: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda a, b: torch.where(condition(a, b), a + 1, b - 1)


UNARY: dict[str, list[Operation]] = {
    **{name: [getattr(torch, name)] for name in ("relu", "sigmoid", "tanh", "exp", "expm1", "log", "log1p", "sqrt")},
    **{name: [getattr(torch, name)] for name in ("rsqrt", "sin", "cos", "erf", "abs", "neg", "square", "reciprocal")},
    **{name: [getattr(F, name)] for name in ("silu", "leaky_relu")},
    "add": [lambda a: a + 0.0, lambda a: a + -0.0],
    "sub": [lambda a: a - 0.0, lambda a: a - -0.0],
    "mul": [lambda a: a * 0.0, lambda a: a * 1.0, lambda a: a * -1e300],
    "div": [lambda a: a / 0.0, lambda a: a / 1.0],
    "rsub": [lambda a: 0.0 - a],
    "pow": [lambda a: a**1, lambda a: a**2, lambda a: a**3, lambda a: a**4],
    "pow of a fraction": [lambda a: a**0.5, lambda a: a**-0.5, lambda a: a**-1.0],
    "clamp": [lambda a: a.clamp(-1, 1), lambda a: a.clamp(2.5, -2.5), lambda a: torch.clamp(a, 0.0, INF)],
    "clamp_min": [lambda a: a.clamp(min=0.5), lambda a: torch.clamp_min(a, NAN)],
    "clamp_max": [lambda a: a.clamp(max=1.0)],
    "hardtanh": [F.hardtanh, F.relu6],
    "elu": [F.elu, lambda a: F.elu(a, 0.5), F.selu],
    "gelu": [F.gelu, lambda a: F.gelu(a, approximate="tanh")],
    "softplus": [F.softplus, lambda a: F.softplus(a, 2, 1)],
    "log_sigmoid_forward": [F.logsigmoid],
    "detach": [lambda a: a.detach() * a],
    "logical_and": [lambda a: torch.where(torch.logical_and(a > 0, a < 2), a, -a)],
    "logical_or": [lambda a: torch.where(torch.logical_or(a > 0, a < -2), a, -a)],
    "logical_not": [lambda a: torch.where(torch.logical_not(a > 0), a, -a)],
    "zeros_like": [lambda a: torch.zeros_like(a) * a, lambda a: torch.full_like(a, -0.0) + a],
    "ones_like": [lambda a: torch.ones_like(a) * a],
    "full_like": [lambda a: torch.full_like(a, INF) * a],
}
BINARY: dict[str, list[Operation]] = {
    **{name: [getattr(torch, name)] for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: [choice_by(getattr(torch, name))] for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    "add with a factor": [lambda a, b: torch.add(a, b, alpha=2)],
    "rsub": [lambda a, b: torch.rsub(a, b, alpha=2)],
    "clamp": [torch.clamp, lambda a, b: torch.clamp(a, max=b)],
    "where": [lambda a, b: torch.where(a > b, a, b)],
}
"""Pointwise operations by their names in torch's dispatcher."""
MOVES = {
    *("mm", "addmm", "split", "split_with_sizes", "slice", "cat", "expand", "sum", "mean", "native_layer_norm", "view"),
    *("_unsafe_view", "unsqueeze", "squeeze", "clone", "alias", "_to_copy", "contiguous"),
}
"""Operations that move and add numbers, and are not in the tables."""
WITHOUT_A_SIGN = {"maximum", "minimum", "clamp", "clamp_min", "clamp_max", "hardtanh"}
"""Which of two zeros torch takes depends on the place of a number in a vector register."""


class Empty(NamedTuple):
    h: Tensor


class Everything(Recurrent):
    """All operations side by side, each on separate features."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.ones = [(name, f) for name, several in UNARY.items() for f in several]
        self.twos = [(name, f) for name, several in BINARY.items() for f in several]
        self.names = [name for name, _ in (*self.ones, *self.twos)]
        self.d_in, self.d_out = N * (len(self.ones) + 2 * len(self.twos)), N * len(self.names)
        self.one = nn.Parameter(torch.ones(1, dtype=dtype))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Empty:
        return Empty(self.one.new_zeros(batch_size, 1))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Empty]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        parts = iter(x_t.split(N, -1))
        ys = [f(next(parts)) for _, f in self.ones] + [f(next(parts), next(parts)) for _, f in self.twos]
        return torch.cat(ys, -1), Empty(h)


class Results(NamedTuple):
    """The values of each operation, and its slopes at both arguments, (N, N) each."""

    values: list[Tensor]
    slopes: list[list[Tensor]]


layer_of = cache(Everything)


def results(dtype: torch.dtype, execution: Execution) -> Results:
    """Return the results of all operations. The first argument differs by feature, the second by row."""
    layer, values = layer_of(dtype), torch.tensor(VALUES, dtype=torch.float64)
    first, second = values.expand(N, N), values.unsqueeze(1).expand(N, N)
    x = torch.cat([first] * len(layer.ones) + [first, second] * len(layer.twos), -1).to(dtype).unsqueeze(1)
    x.requires_grad_()
    with executing(execution):
        y, _ = layer(x)
    slopes = list(torch.autograd.grad(y, x, torch.ones_like(y))[0].squeeze(1).split(N, -1))
    parted = [[slopes.pop(0) for _ in range(1 if k < len(layer.ones) else 2)] for k in range(len(layer.names))]
    return Results(list(y.detach().squeeze(1).split(N, -1)), parted)


def differs(result: Tensor, expected: Tensor, minimum: float) -> Tensor:
    """Return where numbers differ by more than roundings. A number below `minimum` may be 0."""
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 1e-1}[result.dtype]
    near = (result - expected).abs() <= tolerance * expected.abs() + minimum
    return ~((result == expected) | near | (result.isnan() & expected.isnan()))


def wrong_operations(dtype: torch.dtype, execution: Execution) -> set[str]:
    """Return operations whose values or slopes differ from those of `fold`. Slopes at NaN are ignored."""
    actual, expected, broken = results(dtype, execution), results(dtype, "fold"), set()
    tiny, epsilon = 4 * torch.finfo(dtype).tiny, torch.finfo(dtype).eps
    for k, name in enumerate(layer_of(dtype).names):
        y, expected_value = actual.values[k], expected.values[k]
        has_other_sign = (expected_value == 0) & (y.signbit() != expected_value.signbit())
        is_bad = differs(y, expected_value, tiny) | (has_other_sign & (name not in WITHOUT_A_SIGN))
        for slope, wanted_slope in zip(actual.slopes[k], expected.slopes[k], strict=True):
            is_bad |= differs(slope, wanted_slope, epsilon) & ~expected_value.isnan()
        if is_bad.any():
            broken.add(name)
    return broken


def test_every_operation_is_in_the_table() -> None:
    assert {*HANDLERS} - MOVES == {name for name in {*UNARY, *BINARY} if " " not in name}
    assert {*OPERATIONS} <= {*HANDLERS, "stop", "copy", "and", "or", "not"}


@pytest.mark.parametrize(
    ("execution", "dtype"),
    [
        pytest.param("compiled", torch.float32, marks=needs_compiler),
        pytest.param("compiled", torch.float64, marks=[needs_compiler, pytest.mark.slow]),
        ("plain", torch.float32),
        ("plain", torch.float64),
        ("plain", torch.bfloat16),
    ],
)
def test_special_values_equal_those_of_torch(execution: Execution, dtype: torch.dtype) -> None:
    with executing(execution):
        assert explain(layer_of(dtype)).startswith("compiled" if execution == "compiled" else "in torch operations")
    assert wrong_operations(dtype, execution) == set()


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_slopes_at_bounds_are_read_from_torch(slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of torch differ in that slope."""
    monkeypatch.setattr(aten, "_slope_at_bound", lambda function, *, of_tensor: slope if of_tensor else round(slope))
    layer, x = Bounded(), torch.zeros(1, 1, 2).requires_grad_()
    with executing("plain"):
        y, _ = layer(x)
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [round(slope), slope]


class Bounded(Everything):
    """A layer whose first feature has the bound 0, and whose second has a tensor of zeros as its bound."""

    def __init__(self) -> None:
        super().__init__(torch.float32)
        self.d_in = self.d_out = 2

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Empty]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a, b = x_t.chunk(2, -1)
        return torch.cat((a.clamp(min=0.0), torch.clamp(b, h * 0)), -1), Empty(h)


def test_operations_that_lose_nan_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that is written the other way round loses NaN."""
    relu = OPERATIONS["relu"]
    losing = replace(relu, plain=lambda a: torch.where(a > 0, a, 0.0), c="({0} > 0 ? {0} : 0)")
    monkeypatch.setitem(OPERATIONS, "relu", losing)
    assert wrong_operations(torch.float64, "plain") == {"relu"}
