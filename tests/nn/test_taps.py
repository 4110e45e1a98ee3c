"""Taps: `watch` records intermediate values without changing results, and `replace` changes them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from ensue import nn as layers
from ensue.errors import EnsueError
from ensue.nn.taps import is_watched
from ensue.testing.laws import inputs, start
from ensue.types import Memory
from laws.table import SUBJECTS
from training.tiny import some_slow

D, B, T = 4, 2, 5
LAYERS = {
    "lstm": lambda: layers.LSTM(D, D), "gru after": lambda: layers.GRU(D, D),
    "gru before": lambda: layers.GRU(D, D, reset="before"),
    "elman": lambda: layers.Elman(D, D), "window": lambda: layers.Window(D, D, size=2),
    "attention": lambda: layers.MultiHeadAttention(D, num_heads=2),
    "transformer": lambda: layers.Transformer(D, num_heads=2, num_layers=2, positions="rotary"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("mask", [None, torch.tensor([[True] * 5, [True] * 2 + [False] * 3])], ids=["dense", "ragged"])
def test_watching_does_not_change_outputs(make, mask) -> None:  # type: ignore[no-untyped-def]
    layer, x = make(), torch.randn(B, T, D)
    real = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
    y, _ = layer(x, mask=mask)
    with layers.watch(layer) as seen:
        y_watched, _ = layer(x, mask=mask)
    torch.testing.assert_close(y_watched[real], y[real])
    assert set(seen) == set(layers.tap_names(layer))
    assert all(seen.values())


def test_gates_of_an_lstm_satisfy_the_equations_of_the_cell() -> None:
    layer, x = layers.LSTM(D, 3), torch.randn(B, T, D)
    with layers.watch(layer) as seen:
        y, state = layer(x)
    i, f, g, o, c, h = (
        torch.stack(seen[name], dim=1)
        for name in ("gates.input", "gates.forget", "gates.candidate", "gates.output", "cell", "hidden")
    )
    assert f.shape == (B, T, 3)
    c_before = torch.cat((torch.zeros(B, 1, 3), c[:, :-1]), dim=1)
    torch.testing.assert_close(c, f * c_before + i * g)
    torch.testing.assert_close(h, o * c.tanh())
    torch.testing.assert_close(h, y)
    torch.testing.assert_close(c[:, -1], state.c)


def stack() -> layers.SequenceLayer:
    return layers.Stack([layers.LSTM(D, D), layers.GRU(D, D)])


def test_patterns_select_taps() -> None:
    layer = stack()
    with layers.watch(layer, "*.gates.forget", "layers.1.hidden") as seen:
        layer(torch.randn(B, T, D))
    assert list(seen) == ["layers.0.gates.forget", "layers.1.hidden"]
    assert [len(tensors) for tensors in seen.values()] == [T, T]


def test_an_unknown_pattern_names_its_nearest() -> None:
    with (
        pytest.raises(
            EnsueError, match=r'no tap matches "layers.0.gates.forgot"; did you mean "layers.0.gates.forget"'
        ),
        layers.watch(stack(), "layers.0.gates.forgot"),
    ):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_watching_ends_with_the_context(fails: bool) -> None:
    layer = stack()
    try:
        with layers.watch(layer) as seen:
            assert not fails
    except AssertionError:
        pass
    layer(torch.randn(B, T, D))
    assert not any(seen.values())
    assert not is_watched(layer)


def test_recorded_values_have_gradients() -> None:
    layer = layers.LSTM(D, D)
    with layers.watch(layer, "hidden") as seen:
        y, _ = layer(torch.randn(B, T, D))
    gradients = torch.autograd.grad(y[:, -1].sum(), seen["hidden"])
    assert all(gradient.any() for gradient in gradients)


def test_watching_is_limited_to_its_thread() -> None:
    """Calls of the same layer in other threads are not recorded."""
    layer, x = layers.LSTM(D, D), torch.randn(B, T, D)
    with ThreadPoolExecutor(1) as other, layers.watch(layer) as seen:
        assert is_watched(layer)
        assert not other.submit(is_watched, layer).result()
        expected = other.submit(layer, x).result()[0]
        assert not any(seen.values())
        with layers.watch(layer, "hidden") as again:
            y = layer(x)[0]
    assert len(seen["hidden"]) == len(again["hidden"]) == T
    torch.testing.assert_close(y, expected)


REPLACED = {subject.name: subject for subject in SUBJECTS if layers.tap_names(subject.make())}
BY_DEFAULT = ("lstm", "gru after", "qrnn", "clockwork", "attention", "scaled-dot attention", "additive attention")


@pytest.mark.parametrize("name", some_slow(REPLACED, *BY_DEFAULT))
def test_outputs_depend_on_the_replacement_and_not_on_the_value(name: str) -> None:
    """The replacement differs between features, since layer normalization would subtract a common value."""
    layer = REPLACED[name].layer
    x = inputs(layer)
    for tap in layers.tap_names(layer):
        offset = torch.zeros((), dtype=x.dtype, requires_grad=True)

        def replacement(value: Tensor, by: Tensor = offset) -> Tensor:
            return by * torch.linspace(1, 2, value.shape[-1], dtype=by.dtype) + 0.3 * value.detach()

        with layers.watch(layer, tap) as recorded, layers.replace(layer, {tap: replacement}):
            y, _ = layer(x, start(layer))
        of_offset, *of_values = torch.autograd.grad(y.sin().sum(), [offset, *recorded[tap]], allow_unused=True)
        assert of_offset is not None, tap
        assert of_offset != 0, tap
        assert all(gradient is None for gradient in of_values), tap


def test_replaced_weights_make_a_head_copy_one_word() -> None:
    """All attention is on one word of the source, and nothing is generated, so its probability is 1."""
    head, ids = layers.CopyingHead(D, layers.SoftmaxHead(D, 6), d_memory=3), torch.tensor([[0, 7, 2, 6]] * B)
    state = head.init_state(B, Memory(torch.randn(B, 4, 3)), ids)
    second = torch.tensor([0.0, 1, 0, 0])
    changes = {"weights": lambda w: w * 0 + second, "generates": torch.zeros_like}
    with layers.replace(head, changes):
        log_p, _ = head(torch.randn(B, T, D), state)
    torch.testing.assert_close(log_p.exp(), torch.eye(10)[7].expand(B, T, 10), atol=1e-6, rtol=0)


def test_several_replacements_of_a_tap_are_applied_in_order() -> None:
    layer, x = layers.Elman(D, D), torch.randn(1, 1, D)
    with layers.replace(layer, {"hid*": lambda h: h + 1, "*den": lambda h: 2 * h}), layers.watch(layer) as seen:
        y, _ = layer(x)
    torch.testing.assert_close(y[:, 0], 2 * (layer(x)[0][:, 0] + 1))
    torch.testing.assert_close(seen["hidden"][0], y[:, 0])


def test_unknown_taps_and_replacements_of_other_sizes_are_refused() -> None:
    layer = layers.Elman(D, D)
    with (
        pytest.raises(EnsueError, match=r'no tap matches "hiden"; did you mean "hidden"'),
        layers.replace(layer, {"hiden": abs}),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"^hidden: expected a replacement \(2, 4\), found \(2, 1\)$"),
        layers.replace(layer, {"hidden": lambda h: h[:, :1]}),
    ):
        layer(torch.randn(B, T, D))
