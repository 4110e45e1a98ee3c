"""Zoneout equals its equations, draws independent masks, and works around and inside other layers."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, sigmoid, tanh

from ensue.nn import GRU, LSTM, Elman, Recurrent, WeightDrop, watch
from ensue.nn.draws import uniform
from ensue.nn.recurrent.lstm import ProjectedLSTM
from ensue.nn.recurrent.zoneout import Zoneout
from ensue.types import State
from nn.recurrent.row_by_row import D_IN, LENGTHS, MASK, B, D, Found, T, check, randomized, row_by_row, started

Masks = list[Tensor]
"""For each leaf of the state, the share of the old value that a unit keeps at a position: (B, T, d)."""


pytestmark = pytest.mark.usefixtures("in_torch_operations")  # engine/test_engine.py tests the compiled layer


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def lstm_step(layer: Recurrent, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    """Return the new h and c of one row of an LSTM, with or without a projection."""
    w = dict(layer.named_parameters())
    i, f, g, o = (w["weight_input"] @ x + w["weight_hidden"] @ h + w["bias"]).reshape(4, len(c))
    new = sigmoid(f) * c + sigmoid(i) * tanh(g)
    shown = sigmoid(o) * tanh(new)
    return [w["weight_projection"] @ shown if "weight_projection" in w else shown, new]


def elman_step(layer: Recurrent, x: Tensor, h: Tensor) -> list[Tensor]:
    w = dict(layer.named_parameters())
    return [tanh(w["weight_input"] @ x + w["weight_hidden"] @ h + w["bias"])]


Step = Callable[..., list[Tensor]]
CASES: dict[str, tuple[Callable[[], Zoneout], Step]] = {
    "lstm": (lambda: Zoneout(LSTM(D_IN, D), hidden=0.3, cell=0.6), lstm_step),
    "lstm, cell alone": (lambda: Zoneout(LSTM(D_IN, D), hidden=0.0, cell=0.5), lstm_step),
    "projected": (lambda: Zoneout(ProjectedLSTM(D_IN, D, d_cell=7), hidden=0.4, cell=0.2), lstm_step),
    "elman": (lambda: Zoneout(Elman(D_IN, D), hidden=0.5), elman_step),
}


def written_out(layer: Recurrent, step: Step, masks: Masks, x: Tensor, state: State, lengths: list[int]) -> Found:
    def mixed(x_t: Tensor, old: list[Tensor], place: tuple[int, int]) -> tuple[Tensor, list[Tensor]]:
        new = step(layer, x_t, *old)
        after = [m[place] * a + (1 - m[place]) * b for m, a, b in zip(masks, old, new, strict=True)]
        return after[0], after

    return row_by_row(mixed, x, state, lengths)


def drawn(layer: Zoneout, x: Tensor, state: tuple[Tensor, ...]) -> Masks:
    """Return the masks of a call in training: a unit was kept where its value has not changed."""
    with watch(layer, "kept.*") as seen:
        layer(x, state)
    pasts = [torch.stack([start, *passed], dim=1) for start, passed in zip(state, seen.values(), strict=True)]
    return [(past[:, 1:] == past[:, :-1]).double() for past in pasts]


@pytest.mark.parametrize("execution", ["forward", "fold"])
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize(("make", "step"), CASES.values(), ids=CASES)
def test_in_eval_a_unit_keeps_its_share(make: Callable[[], Zoneout], step: Step, ragged: bool, execution: str) -> None:
    layer = randomized(make()).eval()
    shares = zip(layer.init_state(B), layer.probabilities.values(), strict=True)
    masks = [torch.full((B, T, leaf.shape[1]), share, dtype=torch.float64) for leaf, share in shares]
    check(layer, lambda layer, *inputs: written_out(layer.layer, step, masks, *inputs), ragged=ragged, run=execution)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize(("make", "step"), CASES.values(), ids=CASES)
def test_in_training_a_unit_keeps_all_or_nothing(make: Callable[[], Zoneout], step: Step, ragged: bool) -> None:
    layer = randomized(make())
    x, state = started(layer)
    torch.manual_seed(1)
    masks = drawn(layer, x, state)
    assert all(0 < m.mean() < 1 for m, share in zip(masks, layer.probabilities.values(), strict=True) if share)
    check(layer, lambda layer, *inputs: written_out(layer.layer, step, masks, *inputs), ragged=ragged)


def test_masks_are_independent_for_each_unit_position_row_and_call() -> None:
    """The masks have their means, and neighbors agree as often as independent masks."""
    layer = Zoneout(LSTM(D_IN, 16).double(), hidden=0.3, cell=0.6)
    x, start = torch.randn(60, 20, D_IN, dtype=torch.float64), layer.init_state(60)
    state = type(start)(*(torch.randn_like(leaf) for leaf in start))
    h, c = drawn(layer, x, state)
    h_again, _ = drawn(layer, x, state)
    for m, share in ((h, 0.3), (c, 0.6)):
        assert m.mean().item() == pytest.approx(share, abs=0.02)
        for dim in range(3):
            together = (m * m.roll(1, dim)).mean().item()
            assert together == pytest.approx(share**2, abs=0.02)
    assert (h * h_again).mean().item() == pytest.approx(0.3**2, abs=0.02)
    assert (h * c).mean().item() == pytest.approx(0.3 * 0.6, abs=0.02)


def test_a_call_in_training_draws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All masks are drawn before the first position, so that compiled code can loop over positions."""
    layer, shapes = Zoneout(LSTM(D_IN, D), hidden=0.3, cell=0.6), []
    monkeypatch.setattr(
        "ensue.nn.recurrent.zoneout.uniform", lambda shape, **where: shapes.append(shape) or uniform(shape, **where)
    )
    layer(torch.randn(B, T, D_IN))
    assert shapes == [(B, T, D), (B, T, D)]


def test_a_step_in_training_draws_for_its_position() -> None:
    layer = Zoneout(LSTM(D_IN, 16).double(), hidden=0.3, cell=0.6)
    x_t, state = torch.randn(200, D_IN, dtype=torch.float64), layer.init_state(200)
    state = type(state)(*(torch.randn_like(leaf) for leaf in state))
    y_t, after = layer.step(x_t, state)
    assert torch.equal(y_t, after.h)
    for new, old, share in zip(after, state, (0.3, 0.6), strict=True):
        assert (new == old).double().mean().item() == pytest.approx(share, abs=0.04)
    assert not torch.equal(layer.step(x_t, state)[0], y_t)


def test_padding_in_training_changes_no_state() -> None:
    """With NaN at padding, the final state is that of the last position; an empty row keeps its initial state."""
    layer = randomized(Zoneout(LSTM(D_IN, D), hidden=0.5, cell=0.5))
    x, state = started(layer)
    y, final = layer(x.masked_fill(~MASK.unsqueeze(-1), torch.nan), state, mask=MASK)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(final.h[row], y[row, length - 1] if length else state[0][row], rtol=0, atol=0)
    assert torch.equal(final.c[2], state[1][2])
    assert all(bool(leaf.isfinite().all()) for leaf in final)


def test_weight_drop_around_zoneout_trains_the_weights() -> None:
    zoneout = Zoneout(LSTM(D_IN, D), hidden=0.5, cell=0.5)
    WeightDrop(zoneout, 0.5)(torch.randn(2, 5, D_IN))[0].sum().backward()
    gradient = zoneout.layer.get_parameter("weight_hidden").grad
    assert gradient is not None
    assert 0 < (gradient == 0).float().mean() < 1


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Zoneout(LSTM(4, 4), hidden=1.5), "zoneout must be a probability from 0 to 1, found 1.5"),
    (lambda: Zoneout(LSTM(4, 4), hidden=0.5, cell=-0.1), "zoneout must be a probability from 0 to 1, found -0.1"),
    (
        lambda: Zoneout(GRU(4, 4), hidden=0.5, cell=0.5),
        "the state of GRU(d_in=4, d_out=4, reset='after') has no cell c; expected cell = 0",
    ),
    (
        lambda: Zoneout(WeightDrop(LSTM(4, 4), 0.5), hidden=0.5),  # type: ignore[arg-type]
        "Zoneout needs a Recurrent layer, found WeightDrop(LSTM(d_in=4, d_out=4), p=0.5)",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
@pytest.mark.usefixtures("unchecked_types")
def test_wrong_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}[^\n]*$"):
        make()


def test_a_state_without_its_output_is_named() -> None:
    class Silent(LSTM):
        def init_state(self, batch_size: int, memory: object = None) -> tuple[Tensor, ...]:  # type: ignore[override]
            return tuple(super().init_state(batch_size))

    with pytest.raises(ValueError, match=r"^Zoneout needs a layer whose state has the output h, found Silent"):
        Zoneout(Silent(4, 4), hidden=0.5)
