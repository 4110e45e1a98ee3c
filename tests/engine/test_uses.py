"""Uses of layers and graphs of the engine: repeated, partial, frozen, copied, in threads."""

import copy
import io
from collections.abc import Iterator

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from engine.twins import (
    Arguments,
    arguments,
    built,
    close,
    engine,
    naive,
    needs_compiler,
    outcome,
    random_like,
    run,
    shared,
    total_of,
    without_padding,
)
from ensue.engine import executing, explain, unroll
from ensue.nn import Zoneout
from ensue.nn.recurrent.lstm import LSTMState
from ensue.types import leaves, map_state

EXECUTIONS = ["plain", pytest.param("compiled", marks=needs_compiler)]


@pytest.fixture(params=EXECUTIONS)
def execution(request: pytest.FixtureRequest) -> Iterator[None]:
    with executing(request.param):
        yield


@pytest.mark.usefixtures("execution")
@pytest.mark.parametrize("name", ["lstm", "gru after"])
@pytest.mark.parametrize("is_ragged", [False, True])
class TestUses:
    """Uses of a layer and its graph."""

    def test_backward_twice_through_one_graph_gives_equal_gradients(self, name: str, is_ragged: bool) -> None:
        """The values that the first backward pass overwrote are computed again."""
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        total, sources = total_of(run(engine, layer, args)), [args.x, *leaves(args.state), *layer.parameters()]
        first = torch.autograd.grad(total, sources, retain_graph=True)
        second = torch.autograd.grad(total, sources, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        close(list(torch.autograd.grad(total, sources)), list(first))

    def test_two_forwards_before_their_backwards_equal_fold(self, name: str, is_ragged: bool) -> None:
        layer = shared(name, 3, 5)
        one, two = arguments(layer, 4, 6, is_ragged=is_ragged), arguments(layer, 2, 3)
        expected = [outcome(naive, layer, args) for args in (one, two)]
        totals = [total_of(run(engine, layer, args)) for args in (one, two)]
        for total, args, expected_tensors in zip(totals, (one, two), expected, strict=True):
            sources = [args.x, *leaves(args.state), *layer.parameters()]
            close(list(torch.autograd.grad(total, sources)), expected_tensors[-len(sources) :])

    @pytest.mark.sampled(2)
    def test_gradients_by_single_tensors_equal_fold(self, name: str, is_ragged: bool) -> None:
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        for source in (args.x, *leaves(args.state), *layer.parameters()):
            (expected,) = torch.autograd.grad(total_of(run(naive, layer, args)), source)
            (gradient,) = torch.autograd.grad(total_of(run(engine, layer, args)), source)
            close([gradient], [expected])

    @pytest.mark.sampled(2)
    def test_gradients_of_some_results_equal_fold(self, name: str, is_ragged: bool) -> None:
        """The final state alone, or some outputs: the errors of the other results are None or zero."""
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        for choose in (lambda results: results[1:], lambda results: results[:1], lambda results: [results[0][:, 1]]):
            expected = torch.autograd.grad(total_of(choose(run(naive, layer, args))), args.x)
            close(list(torch.autograd.grad(total_of(choose(run(engine, layer, args))), args.x)), list(expected))

    @pytest.mark.sampled(2)
    def test_gradients_beside_frozen_parameters_equal_fold(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        plain = args._replace(x=args.x.detach(), state=map_state(Tensor.detach, args.state))
        for frozen, _ in layer.named_parameters():
            for other, parameter in layer.named_parameters():
                parameter.requires_grad_(other != frozen)
            free = [parameter for parameter in layer.parameters() if parameter.requires_grad]
            expected = torch.autograd.grad(total_of(run(naive, layer, plain)), free)
            close(list(torch.autograd.grad(total_of(run(engine, layer, plain)), free)), list(expected))

    @pytest.mark.sampled(2)
    def test_strided_states_and_inputs_equal_fold(self, name: str, is_ragged: bool) -> None:
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        strided = map_state(lambda leaf: leaf.detach().t().contiguous().t().requires_grad_(), args.state)
        every_second = torch.stack([args.x, args.x], dim=2).flatten(1, 2)[:, ::2].detach().requires_grad_()
        features_first = args.x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0).requires_grad_()
        of_a_vector = args.x.detach()[0, 0].clone().expand(4, 6, 3).requires_grad_()
        for x in (every_second, features_first, of_a_vector):
            assert not x.is_contiguous()
            changed = Arguments(x, strided, args.mask)
            close(outcome(engine, layer, changed), outcome(naive, layer, changed))

    def test_results_share_no_memory_and_states_stay_unchanged(self, name: str, is_ragged: bool) -> None:
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
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
        layer = shared(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        expected = torch.autograd.grad(total_of(run(naive, layer, args)[:1]), args.x)
        y, final = engine(layer, *args)
        for leaf in leaves(final):
            leaf.detach().zero_()
        close(list(torch.autograd.grad(total_of([without_padding(y, args.mask)]), args.x)), list(expected))

    @pytest.mark.sampled(2)
    def test_another_type_after_the_first_call_equals_fold(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5, torch.float32)
        run(engine, layer, arguments(layer, 4, 6))
        for dtype in (torch.float64, torch.float32):
            layer = layer.to(dtype)
            args = arguments(layer, 4, 6, is_ragged=is_ragged)
            close(outcome(engine, layer, args), outcome(naive, layer, args))

    @pytest.mark.sampled(2)
    def test_copies_of_a_layer_that_has_run_equal_it(self, name: str, is_ragged: bool) -> None:
        layer = built(name, 3, 5)
        args = arguments(layer, 4, 6, is_ragged=is_ragged)
        expected = outcome(engine, layer, args)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
            close(outcome(engine, other, args), expected)

    @pytest.mark.sampled(2)
    def test_several_threads_equal_one(self, name: str, is_ragged: bool) -> None:
        layer = shared(name, 3, 5)
        args = arguments(layer, 5, 6, is_ragged=is_ragged)
        expected, before = outcome(engine, layer, args), torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            results = outcome(engine, layer, args)
        finally:
            torch.set_num_threads(before)
        close(results, expected, 1e-13)


@pytest.mark.usefixtures("execution")
def test_the_gradient_of_one_tensor_for_two_leaves_equals_fold() -> None:
    layer = built("lstm", 3, 5)
    leaf = random_like(torch.empty(4, 5, dtype=torch.float64), 3).requires_grad_()
    args = arguments(layer, 4, 6)._replace(state=LSTMState(leaf, leaf))
    (expected,) = torch.autograd.grad(total_of(run(naive, layer, args)), leaf)
    (gradient,) = torch.autograd.grad(total_of(run(engine, layer, args)), leaf)
    close([gradient], [expected])


@pytest.mark.usefixtures("execution")
def test_rows_that_are_all_empty_keep_their_state() -> None:
    layer = built("lstm", 3, 5)
    args = arguments(layer, 4, 6)._replace(mask=torch.zeros(4, 6, dtype=torch.bool))
    assert unroll(layer, *args) is None
    y, final = layer(args.x, args.state, mask=args.mask)
    assert y.shape == (4, 6, 5)
    close(list(leaves(final)), list(leaves(args.state)))


@pytest.mark.usefixtures("execution")
def test_each_mode_has_a_program() -> None:
    """In training, zoneout draws masks, which cannot be traced. In evaluation mode, the layer is traced."""
    layer = Zoneout(built("lstm", 3, 5), hidden=0.3, cell=0.6)
    for _ in range(2):
        layer.train()
        assert explain(layer).startswith("step by step")
        layer.eval()
        args = arguments(layer, 4, 6)
        close(outcome(engine, layer, args), outcome(naive, layer, args))


@pytest.mark.usefixtures("execution")
def test_a_layer_that_first_runs_in_inference_mode_trains_as_any_other() -> None:
    """In inference mode, torch does not decompose composite operations, which a trace depends on."""
    layer = built("layer norm", 3, 5)
    args = arguments(layer, 4, 6)
    with torch.inference_mode():
        assert not explain(layer).startswith("step by step")
        layer(args.x)
    close(outcome(engine, layer, args), outcome(naive, layer, args))


def test_a_layer_in_half_precision_is_close() -> None:
    """Types without compiled code run in torch operations."""
    layer = built("lstm", 3, 5, torch.bfloat16)
    args = arguments(layer, 4, 6)
    close([part.float() for part in run(engine, layer, args)], [part.float() for part in run(naive, layer, args)], 0.05)


def test_the_execution_can_be_chosen() -> None:
    layer = built("lstm", 3, 5)
    with executing("fold"):
        assert unroll(layer, *arguments(layer, 4, 6)) is None
    with pytest.raises((ValueError, TypeCheckError), match="fast"), executing("fast"):  # type: ignore[arg-type]
        pass
