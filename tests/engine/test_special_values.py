"""NaN, infinities, zeros with a sign, tiny and large numbers: every operation of the engine against torch itself."""

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


def chosen(condition: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda a, b: torch.where(condition(a, b), a + 1, b - 1)


OF_ONE: dict[str, list[Operation]] = {
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
OF_TWO: dict[str, list[Operation]] = {
    **{name: [getattr(torch, name)] for name in ("add", "sub", "mul", "div", "maximum", "minimum")},
    **{name: [chosen(getattr(torch, name))] for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    "add with a factor": [lambda a, b: torch.add(a, b, alpha=2)],
    "rsub": [lambda a, b: torch.rsub(a, b, alpha=2)],
    "clamp": [torch.clamp, lambda a, b: torch.clamp(a, max=b)],
    "where": [lambda a, b: torch.where(a > b, a, b)],
}
"""The operations of tensors with values of their own, by their names below autograd."""
MOVING = {
    *("mm", "addmm", "split", "split_with_sizes", "slice", "cat", "expand", "sum", "mean", "native_layer_norm", "view"),
    *("_unsafe_view", "unsqueeze", "squeeze", "clone", "alias", "_to_copy", "contiguous"),
}
"""These move numbers and add them up."""
WITHOUT_A_SIGN = {"maximum", "minimum", "clamp", "clamp_min", "clamp_max", "hardtanh"}
"""Of two zeros torch takes one or the other, by the place of a number among those of a vector register."""


class Empty(NamedTuple):
    h: Tensor


class Everything(Recurrent):
    """All operations side by side, each on features of its own."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.ones = [(name, f) for name, several in OF_ONE.items() for f in several]
        self.twos = [(name, f) for name, several in OF_TWO.items() for f in several]
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
    """For each operation its values, and its slopes at both arguments, (N, N) each."""

    values: list[Tensor]
    slopes: list[list[Tensor]]


layer_of = cache(Everything)


def results(dtype: torch.dtype, execution: Execution) -> Results:
    """The first argument differs from feature to feature, the second from row to row."""
    layer, values = layer_of(dtype), torch.tensor(VALUES, dtype=torch.float64)
    first, second = values.expand(N, N), values.unsqueeze(1).expand(N, N)
    x = torch.cat([first] * len(layer.ones) + [first, second] * len(layer.twos), -1).to(dtype).unsqueeze(1)
    x.requires_grad_()
    with executing(execution):
        y, _ = layer(x)
    slopes = list(torch.autograd.grad(y, x, torch.ones_like(y))[0].squeeze(1).split(N, -1))
    parted = [[slopes.pop(0) for _ in range(1 if k < len(layer.ones) else 2)] for k in range(len(layer.names))]
    return Results(list(y.detach().squeeze(1).split(N, -1)), parted)


def differs(found: Tensor, expected: Tensor, least: float) -> Tensor:
    """Whether numbers differ by more than roundings. What is below `least` may be 0."""
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 1e-1}[found.dtype]
    near = (found - expected).abs() <= tolerance * expected.abs() + least
    return ~((found == expected) | near | (found.isnan() & expected.isnan()))


def wrong(dtype: torch.dtype, execution: Execution) -> set[str]:
    """The operations with other values or slopes than `fold` has. Where a value is NaN, no slope is asked for."""
    found, expected, broken = results(dtype, execution), results(dtype, "fold"), set()
    tiny, epsilon = 4 * torch.finfo(dtype).tiny, torch.finfo(dtype).eps
    for k, name in enumerate(layer_of(dtype).names):
        y, wanted = found.values[k], expected.values[k]
        has_other_sign = (wanted == 0) & (y.signbit() != wanted.signbit())
        is_bad = differs(y, wanted, tiny) | (has_other_sign & (name not in WITHOUT_A_SIGN))
        for slope, wanted_slope in zip(found.slopes[k], expected.slopes[k], strict=True):
            is_bad |= differs(slope, wanted_slope, epsilon) & ~wanted.isnan()
        if is_bad.any():
            broken.add(name)
    return broken


def test_every_operation_is_in_the_table() -> None:
    assert {*HANDLERS} - MOVING == {name for name in {*OF_ONE, *OF_TWO} if " " not in name}
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
def test_special_values_are_those_of_torch(execution: Execution, dtype: torch.dtype) -> None:
    with executing(execution):
        assert explain(layer_of(dtype)).startswith("compiled" if execution == "compiled" else "in torch operations")
    assert wrong(dtype, execution) == set()


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_slopes_at_bounds_are_asked_of_torch(slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a torch has it whose slope there is another."""
    monkeypatch.setattr(aten, "_slope_at_bound", lambda function, *, of_tensor: slope if of_tensor else round(slope))
    layer, x = Bounded(), torch.zeros(1, 1, 2).requires_grad_()
    with executing("plain"):
        y, _ = layer(x)
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [round(slope), slope]


class Bounded(Everything):
    """Its first feature with 0 as a bound, its second with a tensor of zeros."""

    def __init__(self) -> None:
        super().__init__(torch.float32)
        self.d_in = self.d_out = 2

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Empty]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a, b = x_t.chunk(2, -1)
        return torch.cat((a.clamp(min=0.0), torch.clamp(b, h * 0)), -1), Empty(h)


def test_operations_that_lose_nan_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a comparison does that is written the other way round."""
    relu = OPERATIONS["relu"]
    losing = replace(relu, plain=lambda a: torch.where(a > 0, a, 0.0), c="({0} > 0 ? {0} : 0)")
    monkeypatch.setitem(OPERATIONS, "relu", losing)
    assert wrong(torch.float64, "plain") == {"relu"}
