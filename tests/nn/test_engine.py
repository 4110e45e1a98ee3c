"""The engine against its naive twin: what `unroll` gives is what `fold` gives, in values and gradients.

Every cell, in float64 to 1e-9 and in float32 to 1e-5 of 1 + |value|, compiled and in torch operations. A cell takes a
second to compile for each type, and once more where a size is 1. So by default all cells are compiled in float64, as
the laws do anyway, and only the representative ones in float32 and with one unit; the `slow` tests compile the rest.
"""

import copy
import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor, nn
from torch.func import functional_call

from ensue.nn import (
    GRU,
    LSTM,
    CoupledLSTM,
    Elman,
    LayerNormLSTM,
    MinGRU,
    MinLSTM,
    PeepholeLSTM,
    ProjectedLSTM,
    Recurrent,
    Zoneout,
)
from ensue.nn.clockwork import ClockworkUnits
from ensue.nn.depth_gated import DepthGatedLayer, OpenLSTM
from ensue.nn.engine import Execution, executing, explain, unroll
from ensue.nn.engine.c_library import compiler
from ensue.nn.grid import GridLayer
from ensue.nn.lstm import LSTMState
from ensue.nn.zoneout import GivenMasks
from ensue.types import State, leaves, map_state

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")

CELLS: dict[str, Callable[[int, int], Recurrent]] = {
    "lstm": LSTM,
    "gru after": GRU,
    "gru before": lambda d_in, d: GRU(d_in, d, reset="before"),
    "elman tanh": Elman,
    "elman relu": lambda d_in, d: Elman(d_in, d, activation="relu"),
    "peephole": PeepholeLSTM,
    "coupled": CoupledLSTM,
    "layer norm": LayerNormLSTM,
    "projected": lambda d_in, d: ProjectedLSTM(d_in, d, d_cell=2 * d + 1),
    "open lstm": OpenLSTM,
    "depth-gated": lambda d_in, d: DepthGatedLayer(d),
    "grid": lambda d_in, d: GridLayer(d),
    "mingru": MinGRU,
    "minlstm": MinLSTM,
    "zoneout": lambda d_in, d: Zoneout(LSTM(d_in, d), hidden=0.3, cell=0.6),
    "zoneout, masks given": lambda d_in, d: Zoneout(LSTM(d_in, d), hidden=0.3, cell=0.6).given_masks,
    "clockwork units": lambda d_in, d: ClockworkUnits(d),
}
REPRESENTATIVE = {"lstm", "gru after", "layer norm"}
SHAPES = [(1, 9, 4, 33), (13, 3, 2, 7), (4, 6, 3, 5)]  # B, T, d_in, d
OF_ONE_UNIT = [(1, 1, 1, 1), (3, 5, 7, 1)]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def built(name: str, d_in: int, d: int, dtype: torch.dtype = torch.float64) -> Recurrent:
    """In `eval`, every parameter far from where training begins. A new layer, which has not run.

    In float32 they are half as large: what amplifies its state amplifies the rounding of both sides.
    """
    layer = CELLS[name](d_in, d).to(dtype).eval()
    scale = 0.5 if dtype == torch.float64 else 0.25
    generator = torch.Generator().manual_seed(d)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return layer


kept = cache(built)
"""The same, for tests that leave it as it is: the next one need not trace it."""


def random_like(tensor: Tensor, seed: int) -> Tensor:
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=torch.Generator().manual_seed(seed))


class Given(NamedTuple):
    """What a layer is called with."""

    x: Tensor
    state: State
    mask: Tensor | None


def given(layer: Recurrent, batch: int, positions: int, *, is_ragged: bool = False) -> Given:
    """Something to differentiate by; the lengths of ragged rows go from `positions` down to 0 and round again."""
    dtype = next(layer.parameters()).dtype
    x = random_like(torch.empty(batch, positions, layer.d_in, dtype=dtype), 1).requires_grad_()
    state = map_state(lambda leaf: random_like(leaf, leaf.shape[1]).requires_grad_(), layer.init_state(batch))
    lengths = positions - torch.arange(batch).mul(2).remainder(positions + 1)
    return Given(x, state, torch.arange(positions) < lengths.unsqueeze(1) if is_ragged else None)


def without_padding(y: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros there: it is unspecified."""
    return y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)


def naive(layer: Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    return layer.fold(x, state, mask=mask)


def engine(layer: Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    found = unroll(layer, x, state, mask)
    assert found is not None, explain(layer)
    return found


def total_of(results: list[Tensor]) -> Tensor:
    """One number that every entry of `results` has its own part in."""
    total = sum((result * random_like(result, seed)).sum() for seed, result in enumerate(results))
    assert isinstance(total, Tensor)
    return total


def run(how: Callable[..., tuple[Tensor, State]], layer: Recurrent, args: Given) -> list[Tensor]:
    y, final = how(layer, *args)
    return [without_padding(y, args.mask), *leaves(final)]


def everything(how: Callable[..., tuple[Tensor, State]], layer: Recurrent, args: Given) -> list[Tensor]:
    """Outputs, final state, and the gradients of both by x, the state and the parameters."""
    results = run(how, layer, args)
    sources = [args.x, *leaves(args.state), *layer.parameters()]
    found = torch.autograd.grad(total_of(results), sources, allow_unused=True, materialize_grads=True)
    return [*results, *found]


def close(found: list[Tensor], expected: list[Tensor], tolerance: float | None = None) -> None:
    """Each entry to a tolerance relative to 1 + the largest of its tensor."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        allowed = tolerance or TOLERANCE[b.dtype]
        error = ((a - b).abs().max() / (1 + b.abs().max())).item() if b.numel() else 0.0
        assert error <= allowed, f"off by {error:.1e}"


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_in_torch_operations(name: str, dtype: torch.dtype) -> None:
    check(name, "plain", dtype, [SHAPES[-1], *(OF_ONE_UNIT if dtype == torch.float64 else [])])


@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_compiled(name: str) -> None:
    assert explain(kept(name, 3, 5)) == "compiled"
    check(name, "compiled", torch.float64, SHAPES)


def the_rest(name: str) -> object:
    return pytest.param(name, marks=[] if name in REPRESENTATIVE else pytest.mark.slow)


@needs_compiler
@pytest.mark.parametrize("name", list(map(the_rest, CELLS)))
def test_compiled_in_single_precision(name: str) -> None:
    check(name, "compiled", torch.float32, SHAPES)


@needs_compiler
@pytest.mark.parametrize("name", list(map(the_rest, CELLS)))
def test_compiled_with_one_unit(name: str) -> None:
    check(name, "compiled", torch.float64, OF_ONE_UNIT)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", CELLS)
def test_compiled_with_one_unit_in_single_precision(name: str) -> None:
    check(name, "compiled", torch.float32, OF_ONE_UNIT)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batches_of_every_remainder_of_a_tile(dtype: torch.dtype) -> None:
    layer = kept("lstm", 3, 5, dtype)
    for batch in range(1, 27):
        args = given(layer, batch, 2, is_ragged=batch % 2 == 0)
        close(everything(engine, layer, args), everything(naive, layer, args))


class Unrolled(nn.Module):
    """A layer, run by the engine, as a function of its parameters too."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        return engine(self.layer, x, state, mask)


@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_those_of_finite_differences(name: str, is_ragged: bool) -> None:
    layer = kept(name, 3, 5)
    args = given(layer, 3, 4, is_ragged=is_ragged)
    names = [f"layer.{name}" for name, _ in layer.named_parameters()]
    states = len(list(leaves(args.state)))
    features = layer.zoneout.d_in if isinstance(layer, GivenMasks) else layer.d_in
    x, masks = args.x.detach().split((features, layer.d_in - features), dim=-1)

    def outputs(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        state = type(args.state)(*others[:states])
        weights = dict(zip(names, others[states:], strict=True))
        y, final = functional_call(Unrolled(layer), weights, (torch.cat((x, masks), dim=-1), state, args.mask))
        return y, *leaves(final)

    weights = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), *leaves(args.state), *weights), fast_mode=True)


EXECUTIONS = ["plain", pytest.param("compiled", marks=needs_compiler)]


@pytest.fixture(params=EXECUTIONS)
def execution(request: pytest.FixtureRequest) -> Iterator[None]:
    with executing(request.param):
        yield


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize("name", ["lstm", "gru after"])
@pytest.mark.parametrize("is_ragged", [False, True])
class TestUses:
    """What is done with a layer and its graph."""

    def test_backward_twice_through_one_graph(self, name: str, is_ragged: bool) -> None:
        """What backward has written over is made again."""
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        total, sources = total_of(run(engine, layer, args)), [args.x, *leaves(args.state), *layer.parameters()]
        first = torch.autograd.grad(total, sources, retain_graph=True)
        second = torch.autograd.grad(total, sources, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        close(list(torch.autograd.grad(total, sources)), list(first))

    def test_two_forwards_before_their_backwards(self, name: str, is_ragged: bool) -> None:
        layer = kept(name, 3, 5)
        one, two = given(layer, 4, 6, is_ragged=is_ragged), given(layer, 2, 3)
        expected = [everything(naive, layer, args) for args in (one, two)]
        totals = [total_of(run(engine, layer, args)) for args in (one, two)]
        for total, args, wanted in zip(totals, (one, two), expected, strict=True):
            sources = [args.x, *leaves(args.state), *layer.parameters()]
            close(list(torch.autograd.grad(total, sources)), wanted[-len(sources) :])

    def test_gradients_of_some(self, name: str, is_ragged: bool) -> None:
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        for source in (args.x, *leaves(args.state), *layer.parameters()):
            (expected,) = torch.autograd.grad(total_of(run(naive, layer, args)), source)
            (found,) = torch.autograd.grad(total_of(run(engine, layer, args)), source)
            close([found], [expected])

    def test_of_some_results(self, name: str, is_ragged: bool) -> None:
        """Of the final state alone, or of some outputs: the errors at the others are not there, or zero."""
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        for choose in (lambda results: results[1:], lambda results: results[:1], lambda results: [results[0][:, 1]]):
            expected = torch.autograd.grad(total_of(choose(run(naive, layer, args))), args.x)
            close(list(torch.autograd.grad(total_of(choose(run(engine, layer, args))), args.x)), list(expected))

    def test_frozen_parameters_and_inputs(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        plain = args._replace(x=args.x.detach(), state=map_state(Tensor.detach, args.state))
        for frozen, _ in layer.named_parameters():
            for other, parameter in layer.named_parameters():
                parameter.requires_grad_(other != frozen)
            free = [parameter for parameter in layer.parameters() if parameter.requires_grad]
            expected = torch.autograd.grad(total_of(run(naive, layer, plain)), free)
            close(list(torch.autograd.grad(total_of(run(engine, layer, plain)), free)), list(expected))

    def test_strided_states_and_inputs(self, name: str, is_ragged: bool) -> None:
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        strided = map_state(lambda leaf: leaf.detach().t().contiguous().t().requires_grad_(), args.state)
        every_second = torch.stack([args.x, args.x], dim=2).flatten(1, 2)[:, ::2].detach().requires_grad_()
        features_first = args.x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0).requires_grad_()
        of_a_vector = args.x.detach()[0, 0].clone().expand(4, 6, 3).requires_grad_()
        for x in (every_second, features_first, of_a_vector):
            assert not x.is_contiguous()
            changed = Given(x, strided, args.mask)
            close(everything(engine, layer, changed), everything(naive, layer, changed))

    def test_no_state_is_the_initial_one(self, name: str, is_ragged: bool) -> None:
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)._replace(state=None)
        close(everything(engine, layer, args), everything(naive, layer, args))

    def test_states_are_values(self, name: str, is_ragged: bool) -> None:
        """Neither is a given state changed, nor does one tensor that is handed out lie in another."""
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        before = [leaf.detach().clone() for leaf in (args.x, *leaves(args.state))]
        with torch.no_grad():
            kinds = [run(engine, layer, args)]
        kinds.append(run(engine, layer, args))
        close([leaf.detach() for leaf in (args.x, *leaves(args.state))], before)
        for results in kinds:
            places = [tensor.untyped_storage().data_ptr() for tensor in (*results, *leaves(args.state), args.x)]
            assert len(set(places)) == len(places)

    def test_final_states_may_be_written_over(self, name: str, is_ragged: bool) -> None:
        """They are copies: the gradient of the outputs does not read them."""
        layer = kept(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        expected = torch.autograd.grad(total_of(run(naive, layer, args)[:1]), args.x)
        y, final = engine(layer, *args)
        for leaf in leaves(final):
            leaf.detach().zero_()
        close(list(torch.autograd.grad(total_of([without_padding(y, args.mask)]), args.x)), list(expected))

    def test_other_weights_for_a_call(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        run(engine, layer, args)
        other = copy.deepcopy(layer)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(-0.7)
        weights = {f"layer.{name}": weight for name, weight in other.named_parameters()}
        y, final = functional_call(Unrolled(layer), weights, tuple(args))
        found = torch.autograd.grad(total_of([without_padding(y, args.mask), *leaves(final)]), list(weights.values()))
        expected = torch.autograd.grad(total_of(run(naive, other, args)), list(other.parameters()))
        close(list(found), list(expected))

    def test_weights_that_change_between_calls(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        run(engine, layer, args)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(-0.7)
        close(everything(engine, layer, args), everything(naive, layer, args))

    def test_another_type_after_the_first_call(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5, torch.float32)
        run(engine, layer, given(layer, 4, 6))
        for dtype in (torch.float64, torch.float32):
            layer = layer.to(dtype)
            args = given(layer, 4, 6, is_ragged=is_ragged)
            close(everything(engine, layer, args), everything(naive, layer, args))

    def test_copies_of_a_layer_that_has_run(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = given(layer, 4, 6, is_ragged=is_ragged)
        expected = everything(engine, layer, args)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
            close(everything(engine, other, args), expected)

    def test_several_threads(self, name: str, is_ragged: bool) -> None:
        layer = kept(name, 3, 5)
        args = given(layer, 5, 6, is_ragged=is_ragged)
        expected, before = everything(engine, layer, args), torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            found = everything(engine, layer, args)
        finally:
            torch.set_num_threads(before)
        close(found, expected, 1e-13)


@pytest.mark.usefixtures("execution")
def test_one_tensor_for_two_leaves() -> None:
    layer = built("lstm", 3, 5)
    leaf = random_like(torch.empty(4, 5, dtype=torch.float64), 3).requires_grad_()
    args = given(layer, 4, 6)._replace(state=LSTMState(leaf, leaf))
    (expected,) = torch.autograd.grad(total_of(run(naive, layer, args)), leaf)
    (found,) = torch.autograd.grad(total_of(run(engine, layer, args)), leaf)
    close([found], [expected])


@pytest.mark.usefixtures("execution")
def test_rows_that_are_all_empty_keep_their_state() -> None:
    layer = built("lstm", 3, 5)
    args = given(layer, 4, 6)._replace(mask=torch.zeros(4, 6, dtype=torch.bool))
    assert unroll(layer, *args) is None
    y, final = layer(args.x, args.state, mask=args.mask)
    assert y.shape == (4, 6, 5)
    close(list(leaves(final)), list(leaves(args.state)))


@pytest.mark.usefixtures("execution")
def test_a_program_for_each_mode() -> None:
    """In training zoneout draws its masks, which cannot be traced; in `eval` it can. No mode is taken for the other."""
    layer = Zoneout(built("lstm", 3, 5), hidden=0.3, cell=0.6)
    for _ in range(2):
        layer.train()
        assert explain(layer).startswith("step by step")
        layer.eval()
        args = given(layer, 4, 6)
        close(everything(engine, layer, args), everything(naive, layer, args))


@pytest.mark.usefixtures("execution")
def test_a_layer_in_half_precision_is_close() -> None:
    """Types that are not compiled run in torch operations, whatever is asked for."""
    layer = built("lstm", 3, 5, torch.bfloat16)
    args = given(layer, 4, 6)
    close([part.float() for part in run(engine, layer, args)], [part.float() for part in run(naive, layer, args)], 0.05)


def test_one_may_choose_the_execution() -> None:
    layer = built("lstm", 3, 5)
    with executing("fold"):
        assert unroll(layer, *given(layer, 4, 6)) is None
    with pytest.raises((ValueError, TypeCheckError), match="fast"), executing("fast"):  # type: ignore[arg-type]
        pass
