"""Norms of ∂loss/∂h_t, against closed forms and written-out loops; the copy task; the picture."""

import math
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.errors import EnsueError, TrainingError
from ensue.extensions.gradients import gradients
from ensue.extensions.gradients import gradients as copying
from ensue.models.specification import ENCODER_KINDS
from ensue.nn import GRU, LSTM, Bidirectional, Elman, Recurrent, Stack, Tap, Transformer, Window
from training.tiny import some_slow


class LeakyState(NamedTuple):
    h: Tensor


class Leaky(Recurrent):
    """h' = a h + x."""

    def __init__(self, d: int, a: float) -> None:
        super().__init__()
        self.d_in, self.d_out, self.a, self.hidden = d, d, a, Tap()

    def init_state(self, batch_size: int, memory: object = None) -> LeakyState:
        return LeakyState(torch.zeros(batch_size, self.d_out, dtype=torch.float64))

    def step(self, x_t: Tensor, state: LeakyState | None = None) -> tuple[Tensor, LeakyState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        h = self.hidden(self.a * h + x_t.requires_grad_())
        return h, LeakyState(h)


@pytest.mark.parametrize("a", [0.5, 1.0, 1.25])
def test_norms_of_a_linear_recurrence_are_powers(a: float) -> None:
    x = torch.randn(2, 30, 3, dtype=torch.float64)
    weights = torch.tensor([[1.0, 2.0, 2.0], [3.0, 0.0, 4.0]], dtype=torch.float64)
    norms = gradients.state_gradients(Leaky(3, a), x, lambda y: (y[:, -1] * weights).sum(-1))
    powers = a ** np.arange(29, -1, -1)
    np.testing.assert_allclose(norms.numpy(), np.outer([3.0, 5.0], powers), rtol=1e-12)


def test_norms_of_a_loss_at_every_position_are_geometric_sums() -> None:
    x = torch.randn(1, 12, 1, dtype=torch.float64)
    norms = gradients.state_gradients(Leaky(1, 0.5), x, lambda y: y.sum())
    np.testing.assert_allclose(norms[0].numpy(), [2 - 0.5 ** (11 - t) for t in range(12)], rtol=1e-12)


def test_norms_of_an_elman_unit_are_products_of_slopes() -> None:
    layer = Elman(1, 1).double()
    w, u, b = 0.7, -1.3, 0.2
    for parameter, value in ((layer.weight_input, w), (layer.weight_hidden, u), (layer.bias, b)):
        nn.init.constant_(parameter, value)
    x = np.linspace(-1.5, 1.0, 9)
    states = [0.0]
    for x_t in x:
        states.append(math.tanh(w * x_t + u * states[-1] + b))
    slopes = [abs(u) * (1 - h * h) for h in states[2:]]
    expected = [math.prod(slopes[t:]) for t in range(len(x))]
    norms = gradients.state_gradients(layer, torch.from_numpy(x).view(1, -1, 1), lambda y: y[:, -1, 0])
    np.testing.assert_allclose(norms[0].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(("layer", "cell"), [(LSTM(3, 4), nn.LSTMCell(3, 4)), (GRU(3, 4), nn.GRUCell(3, 4))])
def test_norms_are_those_of_autograd_in_a_written_out_loop(layer: LSTM | GRU, cell: nn.LSTMCell | nn.GRUCell) -> None:
    layer, cell = layer.double(), cell.double()
    with torch.no_grad():
        cell.weight_ih.copy_(layer.weight_input)
        cell.weight_hh.copy_(layer.weight_hidden)
        cell.bias_ih.copy_(layer.bias)
        cell.bias_hh.zero_()
    x, target = torch.randn(5, 20, 3).double(), torch.randn(5, 4).double()
    state, hidden = None, []
    for t in range(20):
        state = cell(x[:, t], state)
        hidden.append(state[0] if isinstance(state, tuple) else state)
        hidden[-1].retain_grad()
    F.mse_loss(hidden[-1] + hidden[-4], target, reduction="sum").backward()
    expected = torch.stack([h_t.grad.norm(dim=1) for h_t in hidden if h_t.grad is not None], dim=1)
    norms = gradients.state_gradients(layer, x, lambda y: (y[:, -1] + y[:, -4] - target).square().sum(-1))
    torch.testing.assert_close(norms, expected, rtol=1e-9, atol=0)


def test_the_norm_of_a_stack_is_that_of_all_its_states() -> None:
    below, above = Elman(2, 3), Elman(3, 3)
    x, stack = torch.randn(2, 6, 2), Stack([below, above])
    both = gradients.state_gradients(stack, x, lambda y: y[:, -1].sum())
    parts = [gradients.state_gradients(stack, x, lambda y: y[:, -1].sum(), tap=f"layers.{n}.hidden") for n in (0, 1)]
    assert (parts[0] > 0).all()
    torch.testing.assert_close(both, torch.hypot(*parts))


def test_norms_are_computed_within_no_grad() -> None:
    with torch.no_grad():
        assert (gradients.state_gradients(Elman(2, 3), torch.randn(1, 4, 2), lambda y: y.sum()) > 0).all()


@pytest.mark.parametrize("length", [1, 4])
def test_layers_without_a_state_are_refused(length: int) -> None:
    x = torch.randn(2, length, 8)
    for layer in (Window(8, 8, size=2), Bidirectional(Elman(8, 4), Elman(8, 4))):
        with pytest.raises(EnsueError, match="no state that is carried from position to position"):
            gradients.state_gradients(layer, x, lambda y: y.sum())
    with pytest.raises(EnsueError, match="no tap matches"):
        gradients.state_gradients(
            Transformer(8, num_heads=2, num_layers=1, positions="sinusoidal"), x, lambda y: y.sum()
        )


def test_the_recurrent_encoders_are_those_with_a_state() -> None:
    assert ENCODER_KINDS - set(gradients.RECURRENT_ENCODERS) == {"window", "transformer", "none", "origin"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("encoder", gradients.RECURRENT_ENCODERS)
def test_every_recurrent_encoder_has_norms(encoder: str) -> None:
    norms = gradients.encoder_gradients(encoder, positions=9, steps=0, d_model=8)
    assert norms.trained is None
    assert len(norms.untrained) == 9 + gradients.MAX_COPIED_SYMBOLS
    assert all(value > 0 for value in norms.untrained)


@pytest.mark.parametrize(("positions", "num_symbols"), [(1, 1), (2, 2), (7, gradients.MAX_COPIED_SYMBOLS)])
def test_examples_of_the_copy_task_show_the_symbols_and_ask_for_them(positions: int, num_symbols: int) -> None:
    x, symbols = gradients.draw_examples(50, positions, torch.Generator().manual_seed(0))
    assert x.shape == (50, positions + num_symbols, gradients.NUM_SYMBOLS + 2)
    ids = x.argmax(-1)
    assert (x.sum(-1) == 1).all()
    assert (ids[:, :num_symbols] == symbols).all()
    assert (ids[:, num_symbols:positions] == gradients.NUM_SYMBOLS).all()
    assert (ids[:, positions:] == gradients.NUM_SYMBOLS + 1).all()
    assert symbols.unique().tolist() == list(range(gradients.NUM_SYMBOLS))


def test_the_loss_is_that_of_the_last_positions() -> None:
    copier = gradients.Copier(Elman(gradients.NUM_SYMBOLS + 2, 4))
    _, symbols = gradients.draw_examples(6, 10, torch.Generator().manual_seed(0))
    y = torch.randn(6, 10 + gradients.MAX_COPIED_SYMBOLS, 4)
    logits = copier.readout(y)[:, 10:].log_softmax(-1)
    expected = [
        -sum(float(logits[row, k, symbols[row, k]].detach()) for k in range(gradients.MAX_COPIED_SYMBOLS))
        / gradients.MAX_COPIED_SYMBOLS
        for row in range(6)
    ]
    np.testing.assert_allclose(copier.losses(y, symbols).detach().numpy(), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_copier_learns_to_copy() -> None:
    torch.manual_seed(0)
    copier, generator = gradients.Copier(GRU(gradients.NUM_SYMBOLS + 2, 32)), torch.Generator().manual_seed(0)
    assert gradients.score_copier(copier, 4, generator)[1] < 0.3
    reports: list[tuple[int, float]] = []
    gradients.train_copier(
        copier, positions=4, steps=400, generator=generator, stepped=lambda *report: reports.append(report)
    )
    loss, accuracy = gradients.score_copier(copier, 4, generator)
    assert accuracy > 0.9
    assert loss < 0.5
    assert [step for step, _ in reports] == list(range(1, 401))
    assert reports[0][1] == pytest.approx(math.log(gradients.NUM_SYMBOLS), abs=0.4)


def test_training_changes_the_norms_and_a_seed_repeats_them() -> None:
    before = torch.get_rng_state()
    first, again, other = (
        gradients.encoder_gradients("gru", positions=5, steps=3, seed=seed, d_model=8) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.untrained != other.untrained
    assert first.trained != first.untrained
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loss_that_is_not_finite_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LEARNING_RATE", 1e30)
    with pytest.raises(TrainingError, match=r"^elman: the loss is not finite at step \d+$"):
        gradients.encoder_gradients("elman", positions=5, steps=9, d_model=8)


GRADIENTS = [
    gradients.EncoderGradients("elman", (0.0, 1e-200, 1e-3, 1.0), (0.0, 0.0, 1e-9, 2.0)),
    gradients.EncoderGradients("lstm", (1e-3, 1e-2, 0.1, 1.0), (0.5, 0.5, 0.5, 0.5)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(["a.png", "a.SVG"], "a.SVG"))
def test_the_same_numbers_give_the_same_picture(tmp_path: Path, name: str) -> None:
    (tmp_path / "again").mkdir()
    paths = [tmp_path / name, tmp_path / "again" / name]
    for path in paths:
        gradients.draw_gradients(GRADIENTS, path, steps=3)
    first, again = (path.read_bytes() for path in paths)
    assert first == again
    assert first.startswith(b"\x89PNG" if name == "a.png" else b"<?xml")


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnsueError, match=r"gone/a\.png: cannot be written"):
        gradients.draw_gradients(GRADIENTS, tmp_path / "gone" / "a.png", steps=0)


@pytest.mark.parametrize("heights", [[0.5], [0.1, 0.9, 0.4], [0.3, 0.3, 0.31], [0.99, 1.0, 0.98, 0.0, 0.0]])
def test_labels_do_not_overlap(heights: list[float]) -> None:
    spread = gradients.spread_labels(heights)
    assert all(b - a > gradients.LABEL_HEIGHT - 1e-9 for a, b in pairwise(sorted(spread)))
    assert sorted(range(len(spread)), key=spread.__getitem__) == sorted(range(len(spread)), key=heights.__getitem__)
    assert max(spread) <= 1
    if all(b - a >= gradients.LABEL_HEIGHT for a, b in pairwise(sorted(heights))):
        assert spread == heights
