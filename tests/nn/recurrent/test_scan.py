"""Every execution of the scan equals a loop over the equation, in values and gradients, also in float32."""

import sys
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ensue.nn.recurrent.linear_recurrence import GPU_CHUNK, _scan_chunks, scan
from training.tiny import some_slow

SCAN = sys.modules["ensue.nn.recurrent.linear_recurrence"]  # ensue.nn.scan is the function
SHAPES = [(1, 0, 1), (2, 1, 3), (1, 2, 1), (3, 3, 2), (1, 31, 5), (4, 64, 1), (1, 1000, 1), (2, 1000, 7), (0, 40, 3)]
CHUNKS = [2, 3, GPU_CHUNK, 16, 10**6]
SOME_CHUNKS = some_slow(CHUNKS, 3, 16)
same = torch.testing.assert_close


def coefficients(B: int, T: int, d: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Return a in (-1, 1), b and start."""
    generator = torch.Generator().manual_seed(B + 10 * T + d)
    a = 2 * torch.rand(B, T, d, dtype=dtype, generator=generator) - 1
    return a, *(torch.randn(*shape, dtype=dtype, generator=generator) for shape in ((B, T, d), (B, d)))


def by_hand(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Return the scan by the equation, for autograd."""
    h, outputs = start, []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        h = a_t * h + b_t
        outputs.append(h)
    return torch.stack(outputs, dim=1) if outputs else b


@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 3)),
    length=st.integers(2, 9),
    reverse=st.booleans(),
)
def test_chunks_of_any_length_give_the_loop(shape: tuple[int, int, int], length: int, reverse: bool) -> None:
    a, b, start = coefficients(*shape)
    h = torch.full_like(b, torch.nan)
    _scan_chunks(a, b, start, h, length=length, reverse=reverse)
    if reverse:
        a, b, h = a.flip(1), b.flip(1), h.flip(1)
    same(h, by_hand(a, b, start))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64), ids=["float64", "float32"])
@pytest.mark.parametrize("length", SOME_CHUNKS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_equal_the_loop(
    shape: tuple[int, int, int], length: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SCAN, "CPU_CHUNK", length)
    arguments = [x.requires_grad_() for x in coefficients(*shape, dtype)]
    h, expected = scan(*arguments), by_hand(*arguments)
    same(h, expected)
    dh = torch.randn(h.shape, dtype=dtype)
    gradients = torch.autograd.grad(h, arguments, dh)
    same(gradients, torch.autograd.grad(expected, arguments, dh, allow_unused=True, materialize_grads=True))


def test_a_wide_sequence_equals_the_loop() -> None:
    """A CPU computes wide sequences position by position."""
    arguments = coefficients(1, 100, 5000)
    same(scan(*arguments), by_hand(*arguments))


def test_inputs_and_gradients_may_have_any_strides() -> None:
    """a and b are halves of a transposed tensor; the gradient is an expanded number."""
    both = torch.randn(40, 2, 6, dtype=torch.float64).transpose(0, 1).requires_grad_()
    start = torch.randn(2, 3, dtype=torch.float64)
    a, b = both.tanh().chunk(2, dim=-1)
    (gradient,) = torch.autograd.grad(scan(a, b, start).sum(), both, retain_graph=True)
    (expected,) = torch.autograd.grad(by_hand(a, b, start).sum(), both)
    same(gradient, expected)


def test_masked_positions_repeat_the_last_value() -> None:
    a, b, start = (x.requires_grad_() for x in coefficients(4, 33, 3))
    lengths = torch.tensor([33, 0, 17, 1])
    mask = torch.arange(33) < lengths.unsqueeze(1)
    at_padding = ~mask.unsqueeze(-1)
    h = scan(a.masked_fill(at_padding, torch.nan), b.masked_fill(at_padding, torch.nan), start, mask=mask)
    alone = [by_hand(*(x[row : row + 1, :n] for x in (a, b)), start[row : row + 1]) for row, n in enumerate(lengths)]
    for row, n in enumerate(lengths.tolist()):
        end = alone[row][0, -1] if n else start[row]
        same(h[row], torch.cat((alone[row][0], end.expand(33 - n, 3))))
    da, db = torch.autograd.grad(h.sum(), (a, b))
    assert not da[~mask].any()
    assert not db[~mask].any()
    assert bool(da.isfinite().all())


class Operations(TorchDispatchMode):
    """Counts the operations of torch that are not views."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.count[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def operations(T: int, device: str) -> int:
    a, b, start = (x.to(device).requires_grad_() for x in coefficients(1, T, 1))
    with Operations() as seen:
        scan(a, b, start).sum().backward()
    return seen.count.total()


@pytest.mark.slow
def test_depth_is_logarithmic_away_from_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On `meta`, as on a GPU, four times the positions need a constant number of additional operations.

    The patches keep the counting mode from selecting the sequential scan.
    """
    monkeypatch.setattr("ensue.nn.recurrent.linear_recurrence.is_transformed", lambda: False)
    monkeypatch.setattr("ensue.nn.recurrent.linear_recurrence.needs_history", lambda errors: False)
    counts = [operations(4**k + 1, "meta") for k in range(3, 9)]
    steps = np.diff(counts)
    assert set(steps) == {steps[0]}
    assert counts[-1] < 300


def loop64(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """Return the scan of one row in float64 by the equation."""
    coefficients, values, state = (x[0].double().numpy() for x in (a, b, h))
    outputs = np.empty_like(values)
    for t in range(len(outputs)):
        state = outputs[t] = coefficients[t] * state + values[t]
    return torch.from_numpy(outputs).unsqueeze(0)


class LongSequence(NamedTuple):
    """100,000 positions in float32 with exact outputs `h` and gradients `db` in float64."""

    a: Tensor
    b: Tensor
    start: Tensor
    dh: Tensor
    h: Tensor
    db: Tensor


LONG = {"gates of all kinds": 1e-6, "near 1": 1e-4, "random walk": 2e-5}
"""Kinds of a and b as in a minGRU, and the allowed error, relative to the largest number.

"near 1" is the same number everywhere, so that all its powers are rounded in the same direction.
"""


@cache
def long_sequence(kind: str) -> LongSequence:
    generator = torch.Generator().manual_seed(0)
    v_z, v_n, dh = torch.randn(3, 1, 100_000, 4, generator=generator)
    start, z, n = torch.zeros(1, 4), torch.sigmoid(3 * v_z - 3), torch.nn.functional.softplus(v_n)
    match kind:
        case "near 1":
            z = torch.full_like(z, 1e-5)
            a, b = 1 - z, z * n
        case "random walk":
            a, b = torch.ones_like(z), v_n
        case _:
            a, b = 1 - z, z * n
    after = torch.cat((a[:, 1:], torch.zeros_like(a[:, :1])), dim=1)
    errors = loop64(after.flip(1), dh.flip(1), start).flip(1)
    return LongSequence(a, b, start, dh, loop64(a, b, start), errors)


@pytest.mark.slow
@pytest.mark.parametrize("length", some_slow([GPU_CHUNK, 16, 10**6], 16))
@pytest.mark.parametrize("kind", LONG)
def test_float32_is_stable_over_100_000_positions(kind: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is the gradient, which is a reverse scan."""
    monkeypatch.setattr(SCAN, "CPU_CHUNK", length)
    long = long_sequence(kind)
    b = long.b.clone().requires_grad_()
    h = scan(long.a, b, long.start)
    (db,) = torch.autograd.grad(h, b, long.dh)
    for values, exact in ((h.detach(), long.h), (db, long.db)):
        assert float((values - exact).abs().max() / exact.abs().max()) < LONG[kind]
