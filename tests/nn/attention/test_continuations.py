"""Several continuations of one attention state equal those of copies (`ensue.engine.storage.appended`)."""

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ensue.engine import storage
from ensue.engine.storage import appended
from ensue.nn import MultiHeadAttention, SequenceLayer
from ensue.nn.attention import multi_head
from ensue.testing.laws import Subject, memory_of, same
from ensue.types import State, compacted, detach, hold, leaves, map_state, select_rows
from laws.table import CASES

ROWS = 6
LENGTHS = torch.tensor([3, 2, 0, 1, 3, 2])
CHANGES: dict[str, Callable[[State], State]] = {
    "none": lambda state: state,
    "rows": lambda state: select_rows(state, torch.tensor([1, 1, 0, 5, 4, 2])),
    "all rows": lambda state: compacted(select_rows(state, torch.arange(ROWS))),
    "detach": detach,
    "hold": lambda state: hold(torch.tensor([True, False] * 3), state, state),
    "deepcopy": copy.deepcopy,
    "copy of leaves": lambda state: map_state(copy.copy, state),
    "pickle": lambda state: pickle.loads(pickle.dumps(state)),
}
"""Changes of a state before it is continued."""
READINGS = ("step", "forward", "ragged", "inference", "gradients")
"""The calls by which a layer continues a state."""
Tree = list[tuple[int, str, str]]
"""For each state: the index of the earlier state that it continues, the change of that state, and the reading."""


def read(layer: SequenceLayer, state: State, reading: str, seed: int) -> tuple[Tensor, State]:
    x = torch.randn(ROWS, 3, layer.d_in, generator=torch.Generator().manual_seed(seed)).to(next(layer.parameters()))
    if reading == "inference":
        with torch.inference_mode():
            return layer.step(x[:, 0], state)
    with torch.set_grad_enabled(reading == "gradients"):
        if reading in ("forward", "ragged"):
            y, after = layer(x, state, mask=torch.arange(3) < LENGTHS.unsqueeze(1) if reading == "ragged" else None)
            return y[:, 0], after
        y, after = layer.step(x[:, 0], state)
        return (y.detach(), map_state(Tensor.detach, after)) if reading == "gradients" else (y, after)


def copied(state: State) -> State:
    return map_state(torch.clone, state)


def assert_continuations_equal_those_of_copies(layer: SequenceLayer, tree: Tree, prompt: int = 2) -> None:
    """Assert that outputs and states are bit-identical, and that no state has changed at the end."""
    x = torch.randn(ROWS, prompt, layer.d_in, generator=torch.Generator().manual_seed(0)).to(next(layer.parameters()))
    with torch.no_grad():
        state = layer(x, layer.init_state(ROWS, memory_of(layer)))[1]
    nodes = [(state, copied(state))]
    for seed, (parent, change, reading) in enumerate(tree):
        state, state_copy = nodes[parent % len(nodes)]
        y, state = read(layer, CHANGES[change](state), reading, seed)
        expected, other = read(layer, CHANGES[change](copied(state_copy)), reading, seed)
        same([y, *leaves(state)], [expected, *leaves(other)], rtol=0, atol=0, equal_nan=True)
        nodes.append((state, copied(state)))
    for state, state_copy in nodes:
        same(list(leaves(state)), list(leaves(state_copy)), rtol=0, atol=0, equal_nan=True)


def grows(state: State) -> bool:
    return hasattr(state, "num_positions") or (isinstance(state, tuple) and any(map(grows, state)))


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """States have spare memory for later positions from the first position on."""
    monkeypatch.setattr(storage, "MIN_BUFFER_BYTES", 0)
    monkeypatch.setattr(storage, "ALIGNED_BYTES", 1)


EACH: Tree = [
    (0, "none", "step"),
    *[(1, "none", reading) for reading in READINGS],
    *[(2, change, "step") for change in CHANGES],
    *[(-1, "none", "step")] * 4,
]
"""Each change and each reading, from states that were continued before."""


@pytest.mark.usefixtures("small_buffers")
@pytest.mark.parametrize(
    ("names", "min_layers"),
    [({"attention rotary", "pre-norm decoder block"}, 2), pytest.param(None, 20, marks=pytest.mark.slow)],
)
def test_continuations_of_every_growing_state_equal_those_of_copies(names: set[str] | None, min_layers: int) -> None:
    subjects = [case.values[0] for case in CASES]
    chosen = [subject for subject in subjects if names is None or subject.name in names]
    layers = [subject.layer for subject in chosen if isinstance(subject, Subject)]
    growing = [layer for layer in layers if layer.is_causal and grows(layer.init_state(1, None))]
    for layer in growing:
        assert_continuations_equal_those_of_copies(layer, EACH)
    assert len(growing) >= min_layers


TREES = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(sorted(CHANGES)), st.sampled_from(READINGS)), min_size=2, max_size=14
)


@given(tree=TREES, prompt=st.integers(14, 34), d_head=st.sampled_from([1, 4, 5, 6]), dtype=st.sampled_from(
    [torch.float32, torch.float64, torch.bfloat16, torch.float16]))  # fmt: skip
def test_random_continuations_equal_those_of_copies(tree: Tree, prompt: int, d_head: int, dtype: torch.dtype) -> None:
    """Some heads have odd sizes, whose rounding depends on their address."""
    layer = MultiHeadAttention(2 * d_head, num_heads=2, rotary=d_head % 2 == 0).to(dtype).eval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "MIN_BUFFER_BYTES", 0)
        assert_continuations_equal_those_of_copies(layer, tree, prompt)


def never_refused(old: Tensor, new: Tensor, *, dim: int) -> Tensor:
    """Append without marking the spare memory as used."""
    buffers = dict(getattr(old, "room", {}))
    joined = appended(old, new, dim=dim)
    if buffers:
        vars(old)["room"].update(buffers)
    return joined


@pytest.mark.usefixtures("small_buffers")
def test_a_claim_that_is_never_refused_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    tree: Tree = [(0, "none", "step"), (1, "none", "step"), (1, "none", "step")]
    layer = MultiHeadAttention(8, num_heads=2).eval()
    assert_continuations_equal_those_of_copies(layer, tree)
    monkeypatch.setattr(multi_head, "appended", never_refused)
    with pytest.raises(AssertionError):
        assert_continuations_equal_those_of_copies(layer, tree)


@pytest.mark.usefixtures("small_buffers")
def test_threads_continue_one_state_independently() -> None:
    layer, rounds = MultiHeadAttention(8, num_heads=2).eval(), 20
    states = [read(layer, read(layer, None, "forward", seed)[1], "step", seed)[1] for seed in range(rounds)]
    expected = [[read(layer, copied(state), "step", seed)[0] for seed in range(4)] for state in states]
    barrier = Barrier(4)

    def continue_all(seed: int) -> list[tuple[Tensor, State]]:
        outputs = []
        for state in states:
            barrier.wait()
            outputs.append(read(layer, state, "step", seed))
        return outputs

    # rounding of products depends on torch's number of threads, which new Python threads reset to all cores
    with ThreadPoolExecutor(4, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        for seed, results in enumerate(pool.map(continue_all, range(4))):
            for (y, after), of_state, state in zip(results, expected, states, strict=True):
                same(y, of_state[seed], rtol=0, atol=0)
                same(after.keys[:, :, :-1], state.keys, rtol=0, atol=0)


def num_bytes(state: State) -> int:
    return sum({leaf.data_ptr(): leaf.untyped_storage().nbytes() for leaf in leaves(state)}.values())


@pytest.mark.parametrize("small", [0, 1 << 14])
def test_the_bytes_that_steps_copy_are_linear_in_the_positions(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """A leaf whose storage has another address was copied; a storage is at most twice as large as its leaf."""
    monkeypatch.setattr(storage, "MIN_BUFFER_BYTES", small)
    layer, copies = MultiHeadAttention(32, num_heads=2).eval(), 0
    state = read(layer, None, "forward", 0)[1]
    for seed in range(400):
        before, (_, state) = state, read(layer, state, "step", seed)
        for old, new in zip(before[:3], state[:3], strict=True):
            copies += old.nbytes * (old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr())
            assert new.untyped_storage().nbytes() <= 2 * new.nbytes
    size = sum(leaf.nbytes for leaf in leaves(state))
    assert copies <= 3 * size + 3 * small * small // (ROWS * 32 * 4), f"{copies / size:.1f} times the final state"


@pytest.mark.usefixtures("small_buffers")
def test_pickles_and_copies_have_no_spare_memory() -> None:
    layer = MultiHeadAttention(8, num_heads=2).eval()
    _, state = read(layer, read(layer, None, "forward", 0)[1], "step", 1)
    read(layer, state, "step", 2)
    state_bytes = sum(leaf.nbytes for leaf in leaves(state))
    assert num_bytes(state) > state_bytes
    file = io.BytesIO()
    torch.save({"layers": (state, None)}, file)
    file.seek(0)
    loaded: Any = torch.load(file, weights_only=False)["layers"][0]
    for other in (loaded, copy.deepcopy(state), pickle.loads(pickle.dumps(state)), detach(state)):
        same(other, state, rtol=0, atol=0)
        assert type(other) is type(state)
        assert num_bytes(other) == state_bytes


@pytest.mark.usefixtures("small_buffers")
def test_continuing_a_state_does_not_break_its_gradients() -> None:
    """Appending writes only beyond the end of a tensor, and steps with gradients copy."""
    layer = MultiHeadAttention(8, num_heads=2).eval()
    _, state = read(layer, read(layer, None, "forward", 0)[1], "step", 1)
    factor = torch.ones((), requires_grad=True)
    loss = (factor * state.keys).sum()
    y, after = layer.step(torch.ones(ROWS, 8), state)
    read(layer, state, "step", 2)
    read(layer, after, "step", 3)
    (loss + y.sum()).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(factor.grad, state.keys.sum())
    assert layer.project_in.weight.grad is not None
