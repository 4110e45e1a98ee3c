"""Looking inside: what `watch` sees, and that nothing changes because somebody looks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ensue.errors import EnsueError
from ensue.nn import GRU, LSTM, Elman, MultiHeadAttention, SequenceLayer, Stack, Transformer, Window, tap_names, watch
from ensue.nn.taps import is_watched

D, B, T = 4, 2, 5
LAYERS = {
    "lstm": lambda: LSTM(D, D),
    "gru after": lambda: GRU(D, D),
    "gru before": lambda: GRU(D, D, reset="before"),
    "elman": lambda: Elman(D, D),
    "window": lambda: Window(D, D, size=2),
    "attention": lambda: MultiHeadAttention(D, num_heads=2),
    "transformer": lambda: Transformer(D, num_heads=2, num_layers=2, positions="rotary"),
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("mask", [None, torch.tensor([[True] * 5, [True] * 2 + [False] * 3])], ids=["dense", "ragged"])
def test_a_watched_layer_gives_what_it_gives(make, mask) -> None:  # type: ignore[no-untyped-def]
    layer, x = make(), torch.randn(B, T, D)
    real = torch.ones(B, T, dtype=torch.bool) if mask is None else mask
    y, _ = layer(x, mask=mask)
    with watch(layer) as seen:
        y_watched, _ = layer(x, mask=mask)
    torch.testing.assert_close(y_watched[real], y[real])
    assert set(seen) == set(tap_names(layer))
    assert all(seen.values())


def test_gates_of_an_lstm() -> None:
    """Seen once a position; together they are the cell's equation."""
    layer, x = LSTM(D, 3), torch.randn(B, T, D)
    with watch(layer) as seen:
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


def test_attention_weights_are_distributions_over_the_past() -> None:
    layer = MultiHeadAttention(D, num_heads=2)
    with watch(layer, "weights") as seen:
        layer(torch.randn(B, T, D))
    (weights,) = seen["weights"]
    assert weights.shape == (B, 2, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 2, T))
    assert not weights.triu(1).any()


def stack() -> SequenceLayer:
    return Stack([LSTM(D, D), GRU(D, D)])


def test_patterns_choose() -> None:
    layer = stack()
    with watch(layer, "*.gates.forget", "layers.1.hidden") as seen:
        layer(torch.randn(B, T, D))
    assert list(seen) == ["layers.0.gates.forget", "layers.1.hidden"]
    assert [len(tensors) for tensors in seen.values()] == [T, T]


def test_an_unknown_pattern_names_its_nearest() -> None:
    with (
        pytest.raises(
            EnsueError, match=r'no tap matches "layers.0.gates.forgot"; did you mean "layers.0.gates.forget"'
        ),
        watch(stack(), "layers.0.gates.forgot"),
    ):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_watches_afterwards(fails: bool) -> None:
    layer = stack()
    try:
        with watch(layer) as seen:
            assert not fails
    except AssertionError:
        pass
    layer(torch.randn(B, T, D))
    assert not any(seen.values())
    assert not is_watched(layer)


def test_gradients_reach_what_was_seen() -> None:
    layer = LSTM(D, D)
    with watch(layer, "hidden") as seen:
        y, _ = layer(torch.randn(B, T, D))
    gradients = torch.autograd.grad(y[:, -1].sum(), seen["hidden"])
    assert all(gradient.any() for gradient in gradients)


def test_who_watches_sees_what_passes_in_its_own_thread() -> None:
    """Others that use the same layer meanwhile run as ever, and nothing of theirs is seen."""
    layer, x = LSTM(D, D), torch.randn(B, T, D)
    with ThreadPoolExecutor(1) as other, watch(layer) as seen:
        assert is_watched(layer)
        assert not other.submit(is_watched, layer).result()
        expected = other.submit(layer, x).result()[0]
        assert not any(seen.values())
        with watch(layer, "hidden") as again:
            found = layer(x)[0]
    assert len(seen["hidden"]) == len(again["hidden"]) == T
    torch.testing.assert_close(found, expected)
