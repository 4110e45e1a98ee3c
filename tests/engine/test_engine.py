"""The engine against its naive twin: what `unroll` gives is what `fold` gives, in values and gradients.

Every cell, in float64 to 1e-9 and in float32 to 1e-5 of 1 + |value|, compiled and in torch operations. A cell takes a
second to compile for each type, and once more where a size is 1. So by default all cells are compiled in float64, as
the laws do anyway, and only the representative ones in float32 and with one unit; the `slow` tests compile the rest.
"""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from engine.twins import CELLS, Unrolled, built, close, engine, everything, given, kept, naive, needs_compiler, run
from ensue.engine import CachedWeights, Execution, executing, explain
from ensue.nn import LSTM
from ensue.nn.recurrent.zoneout import ZoneoutWithMasks
from ensue.types import leaves
from training.tiny import some_slow

REPRESENTATIVE = {"lstm", "gru after", "layer norm"}
SHAPES = [(1, 9, 4, 33), (13, 3, 2, 7), (4, 6, 3, 5)]  # B, T, d_in, d
OF_ONE_UNIT = [(1, 1, 1, 1), (3, 5, 7, 1)]


def check(name: str, execution: Execution, dtype: torch.dtype, shapes: list[tuple[int, int, int, int]]) -> None:
    for batch, positions, d_in, d in shapes:
        layer = kept(name, d_in, d, dtype)
        # Of one feature layer norm makes 0 by the inverse root of 1e-5: what is left is rounding, 300 times over.
        tolerance = 1e-3 if (name, d, dtype) == ("layer norm", 1, torch.float32) else None
        for is_ragged in (False, True):
            args = given(layer, batch, positions, is_ragged=is_ragged)
            expected = everything(naive, layer, args)
            with executing(execution):
                close(everything(engine, layer, args), expected, tolerance)
                with torch.no_grad():
                    found = run(engine, layer, args)
                close(found, expected[: len(found)], tolerance)
                assert not any(result.requires_grad for result in found)


@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64))
@pytest.mark.parametrize("name", some_slow(CELLS, "lstm", "gru after"))
def test_every_cell_in_torch_operations(name: str, dtype: torch.dtype) -> None:
    check(name, "plain", dtype, [SHAPES[-1], *(OF_ONE_UNIT if dtype == torch.float64 else [])])


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_compiled(name: str) -> None:
    assert explain(kept(name, 3, 5)) == "compiled"
    check(name, "compiled", torch.float64, SHAPES)


def the_rest(name: str) -> object:
    return pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", list(map(the_rest, CELLS)))
def test_compiled_in_single_precision(name: str) -> None:
    check(name, "compiled", torch.float32, SHAPES)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", list(map(the_rest, CELLS)))
def test_compiled_with_one_unit(name: str) -> None:
    check(name, "compiled", torch.float64, OF_ONE_UNIT)


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("forgetful")
def test_compiled_with_the_options_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that make it fast; other tests leave them out by default (tests/conftest.py)."""
    monkeypatch.delenv("ENSUE_CFLAGS", raising=False)
    layer = built("lstm", 5, 33, torch.float32)
    for batch in (1, 13):
        args = given(layer, batch, 4, is_ragged=batch == 13)
        close(everything(engine, layer, args), everything(naive, layer, args))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_compiled_with_one_unit_in_single_precision(name: str) -> None:
    check(name, "compiled", torch.float32, OF_ONE_UNIT)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_of_every_remainder_of_a_tile(dtype: torch.dtype) -> None:
    layer = kept("lstm", 3, 5, dtype)
    for batch in range(1, 27):
        args = given(layer, batch, 2, is_ragged=batch % 2 == 0)
        close(everything(engine, layer, args), everything(naive, layer, args))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_ragged", some_slow([False, True], True))
@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_those_of_finite_differences(name: str, is_ragged: bool) -> None:
    layer = kept(name, 3, 5)
    args = given(layer, 3, 4, is_ragged=is_ragged)
    names = [f"layer.{name}" for name, _ in layer.named_parameters()]
    states = len(list(leaves(args.state)))
    features = layer.zoneout.d_in if isinstance(layer, ZoneoutWithMasks) else layer.d_in
    x, masks = args.x.detach().split((features, layer.d_in - features), dim=-1)

    def outputs(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        state = type(args.state)(*others[:states])
        weights = dict(zip(names, others[states:], strict=True))
        y, final = functional_call(Unrolled(layer), weights, (torch.cat((x, masks), dim=-1), state, args.mask))
        return y, *leaves(final)

    weights = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), *leaves(args.state), *weights), fast_mode=True)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 7])
def test_held_weights_change_no_bit(rows: int) -> None:
    """W, with more rows than the kernels read at once, and U."""
    torch.manual_seed(0)
    layer, x = LSTM(d_in=600, d_out=40), torch.randn(rows, 5, 600)
    held = CachedWeights()
    with torch.no_grad():
        y, state = layer(x)
        for _ in range(2):
            with held.used():
                again, last = layer(x)
            assert torch.equal(again, y)
            assert torch.equal(last.c, state.c)
        layer.weight_input.mul_(2)
        with held.used():
            assert torch.equal(layer(x)[0], y)  # that is what it means to hold them
        assert not torch.equal(layer(x)[0], y)
    with held.used():
        assert not torch.equal(layer(x)[0], y)  # nothing is held where gradients are wanted
