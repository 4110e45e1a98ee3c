"""States that are matrices: training stores every few positions, and recomputes the states between them."""

import re

import pytest
import torch
from torch import Tensor, nn

from engine.twins import arguments, built, close, engine, naive, needs_compiler, outcome, run
from ensue.engine import c_passes, storage
from ensue.engine.program import Array, build
from ensue.engine.runner import Runner
from ensue.engine.storage import Storage
from ensue.engine.trace import trace
from ensue.nn import LSTM, MLSTM, Recurrent
from ensue.nn.recurrent.delta_rule import MatrixState
from ensue.types import Memory, State

B, T, EVERY = 5, 14, 4
LAYERS = ["mlstm", "inputs of a gated deltanet", "gated delta rule", "rule of an rwkv-7"]


@pytest.fixture(params=[1, 3], ids=["one row", "three rows"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Set chunks of four positions and of one or three rows."""
    monkeypatch.setattr("ensue.engine.c_passes.chunk_sizes", lambda width, itemsize: (EVERY, request.param))
    return int(request.param)


@pytest.mark.sampled(1)
@needs_compiler
@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients_equal_those_of_the_fold(name: str, is_ragged: bool, block: int) -> None:
    layer = built(name, 3, 4)
    args = arguments(layer, B, T, is_ragged=is_ragged)
    expected = outcome(naive, layer, args)
    close(outcome(engine, layer, args), expected)
    with torch.no_grad():
        close(outputs := run(engine, layer, args), expected[: len(outputs)])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", [name for name in LAYERS if "inputs" not in name])
def test_matrices_whose_rows_are_multiples_of_a_vector_register_equal_the_fold(name: str, block: int) -> None:
    """The C code has their sizes as constants."""
    layer = built(name, 3, 16)
    source = c_passes._sources(build(trace(layer)))["backward"]
    assert "+ 16; j += LANES" in source.text
    assert not re.search(r"\bn\[", source.text)
    args = arguments(layer, B, T, is_ragged=True)
    close(outcome(engine, layer, args), outcome(naive, layer, args))


@pytest.mark.sampled(2)
@needs_compiler
@pytest.mark.parametrize("positions", [1, 3, 4, 5, 8])
def test_lengths_that_are_no_multiple_of_a_chunk_equal_the_fold(positions: int, block: int) -> None:
    layer = built("mlstm", 3, 4)
    args = arguments(layer, B, positions)
    close(outcome(engine, layer, args), outcome(naive, layer, args))


@pytest.mark.sampled(1)
@needs_compiler
def test_forward_and_backward_may_have_different_numbers_of_threads(block: int) -> None:
    """Each thread has its own buffer."""
    layer, before = built("mlstm", 3, 4), torch.get_num_threads()
    args = arguments(layer, B, T, is_ragged=True)
    expected = torch.autograd.grad(naive(layer, *args)[0].sum(), list(layer.parameters()))
    try:
        for forward, backward in ((2, 2), (1, 3), (3, 1)):
            torch.set_num_threads(forward)
            y, _ = engine(layer, *args)
            torch.set_num_threads(backward)
            close(list(torch.autograd.grad(y.sum(), list(layer.parameters()))), list(expected))
    finally:
        torch.set_num_threads(before)


@pytest.mark.sampled(1)
@needs_compiler
def test_backward_may_run_twice(block: int) -> None:
    layer = built("mlstm", 3, 4)
    y, _ = engine(layer, *arguments(layer, B, T))
    first = torch.autograd.grad(y.sum(), list(layer.parameters()), retain_graph=True)
    close(list(torch.autograd.grad(y.sum(), list(layer.parameters()))), list(first))


@pytest.mark.sampled(1)
@needs_compiler
def test_training_stores_few_states(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[dict[Array, Storage]] = []
    forward = Runner.forward

    def spy(runner: Runner, *args: object, **options: object) -> object:
        result = forward(runner, *args, **options)  # type: ignore[arg-type]
        recorded.append(result[2])
        return result

    monkeypatch.setattr(Runner, "forward", spy)
    layer = built("mlstm", 3, 4)
    engine(layer, *arguments(layer, B, T))
    width = 2 * 4 * 4
    (states,) = (storage for array, storage in recorded[0].items() if (array.name, array.width) == ("state", width))
    assert len(states.tensor) == T // EVERY * B
    assert states.buffer is not None
    assert len(states.buffer) == torch.get_num_threads() * EVERY * block


def test_large_states_are_matrices_of_loops_without_products() -> None:
    """A product in the loop is computed for all rows at once."""
    assert [array.width for array in build(trace(MLSTM(3, 16, num_heads=2))).large] == [128]
    assert not build(trace(MLSTM(3, 4, num_heads=2))).large
    assert not build(trace(LSTM(3, 16))).large


def test_chunk_sizes_fit_into_a_cache() -> None:
    assert storage.chunk_sizes(16384, 4) == (16, 1)
    assert storage.chunk_sizes(1024, 4) == (32, 8)
    assert storage.chunk_sizes(1 << 20, 4) == (4, 1)


@pytest.mark.sampled(1)
@needs_compiler
def test_a_buffer_that_is_too_small_is_refused(block: int) -> None:
    layer = built("mlstm", 3, 4)
    y, _ = engine(layer, *arguments(layer, B, T))
    node = y.grad_fn
    while node is not None and not hasattr(node, "arrays"):
        node = node.next_functions[0][0]
    assert node is not None
    for array, array_storage in node.arrays.items():
        if array_storage.buffer is not None:
            node.arrays[array] = Storage(array_storage.tensor, array_storage.start, buffer=array_storage.buffer[:0, :])
    with pytest.raises(ValueError, match="the buffer of"):
        y.sum().backward()


class Spreading(Recurrent):
    """A layer whose state has rows of equal numbers."""

    d_in = d_out = 16

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(-1.0, 1.0, 16, dtype=torch.float64))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> MatrixState:
        return MatrixState(self.gain.new_zeros(batch_size, 1, 16, 16))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, MatrixState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        read = (s.squeeze(1) * self.gain).sum(-1)
        return read, MatrixState((x_t.unsqueeze(-1) + torch.zeros_like(s.squeeze(1))).unsqueeze(1))


@pytest.mark.slow
@needs_compiler
def test_states_of_expanded_numbers_equal_the_fold() -> None:
    layer = Spreading()
    args = arguments(layer, B, T, is_ragged=True)
    close(outcome(engine, layer, args), outcome(naive, layer, args))
