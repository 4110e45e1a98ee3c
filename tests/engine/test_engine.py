"""The engine equals `fold` in values and gradients, for every cell, compiled and in torch operations.

Tolerances are 1e-9 in float64 and 1e-5 in float32, relative to 1 + |value|. Compiling a cell takes a second for each
type, and again if a size is 1. So by default a sample of cells is compiled, in float64; the slow tests compile all.
"""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from engine.twins import CELLS, Unrolled, arguments, built, close, engine, naive, needs_compiler, outcome, run, shared
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
        layer = shared(name, d_in, d, dtype)
        # Layer norm of one feature multiplies a rounding error of 0 by 1 / sqrt(1e-5), about 300.
        tolerance = 1e-3 if (name, d, dtype) == ("layer norm", 1, torch.float32) else None
        for is_ragged in (False, True):
            args = arguments(layer, batch, positions, is_ragged=is_ragged)
            expected = outcome(naive, layer, args)
            with executing(execution):
                close(outcome(engine, layer, args), expected, tolerance)
                with torch.no_grad():
                    results = run(engine, layer, args)
                close(results, expected[: len(results)], tolerance)
                assert not any(result.requires_grad for result in results)


@pytest.mark.parametrize("dtype", some_slow([torch.float64, torch.float32], torch.float64))
@pytest.mark.parametrize("name", some_slow(CELLS, "lstm", "gru after"))
def test_every_cell_in_torch_operations_equals_the_fold(name: str, dtype: torch.dtype) -> None:
    check(name, "plain", dtype, [SHAPES[-1], *(OF_ONE_UNIT if dtype == torch.float64 else [])])


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_every_compiled_cell_equals_the_fold(name: str) -> None:
    assert explain(shared(name, 3, 5)) == "compiled"
    check(name, "compiled", torch.float64, SHAPES)


def slow_unless_representative(name: str) -> object:
    return pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", list(map(slow_unless_representative, CELLS)))
def test_cells_compiled_in_single_precision_equal_the_fold(name: str) -> None:
    check(name, "compiled", torch.float32, SHAPES)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("name", list(map(slow_unless_representative, CELLS)))
def test_cells_compiled_with_one_unit_equal_the_fold(name: str) -> None:
    check(name, "compiled", torch.float64, OF_ONE_UNIT)


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("fresh_library")
def test_a_cell_compiled_with_the_options_of_users_equals_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile without optimization by default (tests/conftest.py)."""
    monkeypatch.delenv("ENSUE_CFLAGS", raising=False)
    layer = built("lstm", 5, 33, torch.float32)
    for batch in (1, 13):
        args = arguments(layer, batch, 4, is_ragged=batch == 13)
        close(outcome(engine, layer, args), outcome(naive, layer, args))


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_cells_compiled_with_one_unit_in_single_precision_equal_the_fold(name: str) -> None:
    check(name, "compiled", torch.float32, OF_ONE_UNIT)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_of_any_size_equal_the_fold(dtype: torch.dtype) -> None:
    layer = shared("lstm", 3, 5, dtype)
    for batch in range(1, 27):
        args = arguments(layer, batch, 2, is_ragged=batch % 2 == 0)
        close(outcome(engine, layer, args), outcome(naive, layer, args))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_ragged", some_slow([False, True], True))
@pytest.mark.parametrize("name", CELLS)
def test_gradients_equal_finite_differences(name: str, is_ragged: bool) -> None:
    layer = shared(name, 3, 5)
    args = arguments(layer, 3, 4, is_ragged=is_ragged)
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
def test_cached_weights_change_no_bit(rows: int) -> None:
    """W has more rows than the kernels read at once."""
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
            assert torch.equal(layer(x)[0], y)  # cached weights are not compared with the layer's
        assert not torch.equal(layer(x)[0], y)
    with held.used():
        assert not torch.equal(layer(x)[0], y)  # gradients need the current weights
