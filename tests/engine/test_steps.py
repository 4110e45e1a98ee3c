"""Steps of every kind in the engine equal those of `fold`."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.twins import needs_compiler
from engine.written_steps import D, Step, assert_equals_fold


def normalized(a: Tensor) -> Tensor:
    return F.layer_norm(a, (D,))


STEPS: dict[str, Step] = {
    # An error that goes where another is still to be read.
    "states change places": lambda p, x, a, b: (x * 1.0, b, a),
    "a state moves on": lambda p, x, a, b: (x * 1.0, b + x, torch.tanh(a)),
    "and the other through a sum": lambda p, x, a, b: (x * a, b, p.v * normalized(b) + a),
    "and is read late": lambda p, x, a, b: (x * 1.0, p.v * normalized(x @ p.W), a + torch.tanh(b)),
    "a shift register": lambda p, x, a, b: (x + b, torch.tanh(b @ p.W + x), a),
    # Results that are inputs, that are equal, or that are the same for all rows.
    "two products with x, of which one is saved": lambda p, x, a, b: (
        x * 1.0,
        torch.tanh(x @ p.W),
        torch.sin(x @ p.W.t()),
    ),
    "all results are x": lambda p, x, a, b: (x, x, x),
    "states stay": lambda p, x, a, b: (a * b, a, b),
    "two states are one": lambda p, x, a, b: (a, torch.tanh(a + x), torch.tanh(a + x)),
    "the output is a state": lambda p, x, a, b: (h := torch.tanh(x + a @ p.W), h, h * b),
    "no row differs": lambda p, x, a, b: (p.v * torch.ones_like(a), torch.zeros_like(a), p.u + a * 0),
    "a state is stopped": lambda p, x, a, b: (a, torch.tanh(a.detach() * p.v + x), b * a.detach()),
    # Sums over features, at every depth.
    "sums": lambda p, x, a, b: (a * (x * b).sum(-1, keepdim=True), a * 0.1 + b.mean(-1, keepdim=True) * x, b),
    "a sum that all features read": lambda p, x, a, b: (
        a,
        torch.tanh(a @ p.W + x * (a * b).sum(-1, keepdim=True)),
        torch.tanh(b + (a @ p.W).mean(-1, keepdim=True)),
    ),
    "norms of norms": lambda p, x, a, b: (
        a,
        torch.tanh(b @ p.W) + x,
        torch.tanh(p.v * normalized(x + a @ p.W)) + b + normalized(normalized(a @ p.W) * p.u + b),
    ),
    # Features side by side.
    "pieces of two, multiplied": lambda p, x, a, b: (a, torch.tanh(torch.cat((a[:, 2:], x[:, :2]), 1) @ p.W), b),
    "pieces of two, added": lambda p, x, a, b: (a, x + torch.cat((b[:, :1], a[:, :4]), 1), b),
    "features move on": lambda p, x, a, b: (a, torch.tanh(x + a), torch.cat((b[:, 1:], x[:, :1]), -1)),
    "pieces of results": lambda p, x, a, b: (
        a,
        torch.cat((torch.tanh(a)[:, :2], torch.sigmoid(x @ p.W)[:, 2:]), 1),
        torch.cat(torch.tanh(a @ p.W + b).split([4, 1], 1)[::-1], 1),
    ),
    # Parameters that are not read as they stand.
    "a column of a matrix": lambda p, x, a, b: (a, torch.tanh(a * p.W[:, 0] + x), b),
    "one number of a vector": lambda p, x, a, b: (a, torch.tanh(a * p.v.sum() + x * p.v[0]), b),
    "a matrix of parameters": lambda p, x, a, b: (a, torch.tanh(a @ (p.W * p.v) + x @ p.W.flip(1)), b),
    "one matrix everywhere": lambda p, x, a, b: (
        a,
        torch.tanh(a @ p.W + b @ p.W.t() + x @ p.W + (x * p.v) @ p.W + (a * b) @ p.W),
        b * 0.1 + a,
    ),
    "numbers by a condition": lambda p, x, a, b: (
        a,
        torch.tanh(torch.where(a > 0.1, torch.ones_like(a), -1.0) + a + x),
        b,
    ),
    "a number by a condition": lambda p, x, a, b: (a, torch.tanh(torch.where(a > 0.1, a, 0.5) @ p.W + x), b),
    "a product of a parameter": lambda p, x, a, b: (a + (p.v + 0 * a) @ p.W, x, b),
    "a parameter beside a state": lambda p, x, a, b: (a, x, torch.cat((b[:, 3:], (p.v + 0 * a)[:, :3]), -1)),
    "sums of numbers": lambda p, x, a, b: (a + torch.full_like(a, 0.3).sum(-1, keepdim=True), x, b),
    "numbers side by side": lambda p, x, a, b: (a, x, torch.cat((b * 0.5, torch.full_like(a, 0.3)), -1)[:, 2:7]),
    "a product of numbers": lambda p, x, a, b: (a, torch.full_like(a, 0.3) @ p.W + x, b),
    # Operations that are written with others.
    "activations": lambda p, x, a, b: (
        a,
        F.gelu(a) + F.gelu(b, approximate="tanh") + F.silu(a) + F.leaky_relu(a, 0.2) + F.hardtanh(a) + F.softplus(x),
        F.softplus(a, beta=2, threshold=1) + a.clamp(-0.5, 0.5) + b.clamp(min=0.1) + x.clamp(max=0.1),
    ),
    "heads": lambda p, x, a, b: (
        a,
        ((a @ p.W).unsqueeze(2) * torch.tanh(b).unsqueeze(1) * p.v.unsqueeze(1) + x.unsqueeze(1)).sum(2) * 0.1,
        (torch.sigmoid(a).unsqueeze(2) * b.unsqueeze(1)).mean((1, 2), keepdim=True).flatten(1) + b,
    ),
    "a norm of each head": lambda p, x, a, b: (
        a,
        F.layer_norm(torch.cat((a, b), -1).view(len(x), 2, 5), (5,), p.v, p.u).flatten(1)[:, 2:7],
        F.logsigmoid(b) + F.elu(a * 3) + x,
    ),
    "a matrix in parts": lambda p, x, a, b: (
        a,
        (a.unsqueeze(2) * b.unsqueeze(1))[:, 1:4].expand(-1, -1, -1).sum(1),
        torch.cat((a.unsqueeze(2) * x.unsqueeze(1), b.unsqueeze(1)), 1).sum(1) * p.v,
    ),
    "powers": lambda p, x, a, b: (
        a,
        (a * a + 1) ** 0.5 + (a * a + 1) ** -0.5 + a**2 + b**3 + 1 / (a * a + 1) + (b * b + 1).reciprocal() + x,
        torch.square(a) + 2 - a + torch.rsub(a, b, alpha=2) + torch.add(a, b, alpha=3) * 0.1,
    ),
}  # fmt: skip


COMPILED = (
    "and is read late", "norms of norms", "features move on", "a column of a matrix", "numbers by a condition",
    "activations",
)  # fmt: skip
"""The steps that are compiled by default, since each takes a compile; the others are compiled by `slow` tests."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STEPS)
def test_steps_in_torch_operations_equal_fold(name: str) -> None:
    assert_equals_fold(STEPS[name], "plain")


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in STEPS])
def test_compiled_steps_equal_fold(name: str) -> None:
    assert_equals_fold(STEPS[name], "compiled")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", STEPS)
def test_compiled_steps_in_single_precision_equal_fold(name: str) -> None:
    assert_equals_fold(STEPS[name], "compiled", dtype=torch.float32)


# At a kink, torch chooses a slope. From a state of zeros, the first position is at the kink.
KINKS: dict[str, Step] = {
    "relu": lambda p, x, a, b: (a, torch.relu(a) + x, b),
    "abs": lambda p, x, a, b: (a, a.abs() + x, b),
    "softplus": lambda p, x, a, b: (a, F.softplus(a) + x, b),
    "maximum": lambda p, x, a, b: (a, torch.maximum(a, b) + x, a),
    "minimum": lambda p, x, a, b: (a, torch.minimum(a, b) + x, a),
    "clamp": lambda p, x, a, b: (a, a.clamp(min=0) + 2 * b.clamp(max=0) + x, b),
    "hardtanh": lambda p, x, a, b: (a, F.hardtanh(a, 0.0, 1.0) + x, b),
    "leaky relu": lambda p, x, a, b: (a, F.leaky_relu(a, 0.2) + x, b),
}


@pytest.mark.parametrize("name", KINKS)
def test_slopes_at_kinks_equal_those_of_torch(name: str) -> None:
    assert_equals_fold(KINKS[name], "plain", of_zeros=True)
