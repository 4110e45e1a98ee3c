"""Steps of random expressions in the engine equal those of `fold`."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.twins import needs_compiler
from engine.written_steps import MASK, D, Step, Written, outcome
from ensue.engine import Execution, executing

Leaf = Callable[[Written, Tensor, Tensor, Tensor], Tensor]
LEAVES: dict[str, Leaf] = {
    "x": lambda p, x, a, b: x, "a": lambda p, x, a, b: a, "b": lambda p, x, a, b: b,
    "v": lambda p, x, a, b: p.v + 0 * a, "0.3": lambda p, x, a, b: torch.full_like(a, 0.3),
}  # fmt: skip
UNARY: dict[str, Callable[[Written, Tensor], Tensor]] = {
    "tanh": lambda p, e: torch.tanh(e), "sigmoid": lambda p, e: torch.sigmoid(e), "relu": lambda p, e: torch.relu(e),
    "sin": lambda p, e: torch.sin(e), "exp": lambda p, e: torch.exp(torch.tanh(e)),
    "log": lambda p, e: torch.log(2 + torch.sin(e)), "sqrt": lambda p, e: torch.sqrt(2 + torch.sin(e)),
    "rsqrt": lambda p, e: torch.rsqrt(2 + torch.sin(e)), "erf": lambda p, e: torch.erf(e),
    "softplus": lambda p, e: F.softplus(e), "minus": lambda p, e: 1 - e, "W": lambda p, e: e @ p.W,
    "W.t": lambda p, e: F.linear(e, p.W, p.u), "norm": lambda p, e: F.layer_norm(e, (D,), p.v, p.u),
    "sum": lambda p, e: p.u * e.sum(-1, keepdim=True), "mean": lambda p, e: e - e.mean(-1, keepdim=True),
    "u": lambda p, e: e * p.u, "roll": lambda p, e: torch.cat((e[:, 2:], e[:, :2]), -1),
    "halves": lambda p, e: torch.cat((e, -e), -1).split([3, D + 1, 1], -1)[1][:, 1:],
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda e, f: e / (2 + torch.sin(f)),
    "max": torch.maximum, "min": torch.minimum, "cat": lambda e, f: torch.cat((e[:, 3:], f[:, :3]), -1),
    "dot": lambda e, f: e * (e * f).sum(-1, keepdim=True),
}  # fmt: skip


def evaluated(tree: object, *args: object) -> Tensor:
    """Evaluate a tree of names as an expression."""
    if isinstance(tree, str):
        return LEAVES[tree](*args)  # type: ignore[arg-type]
    name, *parts = tree  # type: ignore[misc]
    values = [evaluated(part, *args) for part in parts]
    if name == "where":
        return torch.where(values[0] > values[1] + 0.0917, values[2], values[3])  # no tie that rounding decides
    return UNARY[name](args[0], *values) if name in UNARY else BINARY[name](*values)  # type: ignore[arg-type]


leaf = st.sampled_from(sorted(LEAVES))
trees = st.recursive(
    leaf,
    lambda parts: (
        st.tuples(st.sampled_from(sorted(UNARY)), parts)
        | st.tuples(st.sampled_from(sorted(BINARY)), parts, parts)
        | st.tuples(st.just("where"), leaf, leaf, parts, parts)
    ),
    max_leaves=8,
)


def step_of(y: object, a: object, b: object) -> Step:
    return lambda *args: (evaluated(y, *args), torch.tanh(evaluated(a, *args)), torch.sin(evaluated(b, *args)))


@settings(max_examples=15, derandomize=True)
@given(trees, trees, trees)
def test_random_steps_equal_fold(y: object, a: object, b: object) -> None:
    assert_equals_fold(step_of(y, a, b), "plain")


@pytest.mark.slow
@given(trees, trees, trees)
def test_many_random_steps_equal_fold(y: object, a: object, b: object) -> None:
    assert_equals_fold(step_of(y, a, b), "plain")


@pytest.mark.slow
@needs_compiler
@settings(max_examples=25)  # each compiles a program
@given(trees, trees, trees)
def test_compiled_random_steps_equal_fold(y: object, a: object, b: object) -> None:
    assert_equals_fold(step_of(y, a, b), "compiled")


def assert_equals_fold(write: Step, execution: Execution) -> None:
    """Compare, with a tolerance relative to the largest number, since large numbers in a step may nearly cancel."""
    layer = Written(write)
    expected = outcome(layer, engine=False, mask=MASK)
    with executing(execution):
        results = outcome(layer, engine=True, mask=MASK)
    scale = max(1.0, *(part.abs().max().item() for part in expected))
    for a, b in zip(results, expected, strict=True):
        assert (a - b).abs().max().item() <= 1e-9 * scale
