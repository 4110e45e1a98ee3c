"""Layers equal the equations of their docstrings, computed by hand in plain Python."""

import math

import pytest
import torch
from torch import Tensor

from ensue.nn import GRU, LSTM, Rotary, SinusoidalPositions

pytestmark = pytest.mark.usefixtures("in_torch_operations")
"""Other tests compare compiled code with operations of torch."""
X = [0.5, -1.5]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def sequence() -> Tensor:
    return column(*X).unsqueeze(0)


def test_a_gru_with_the_reset_gate_before_equals_its_equations() -> None:
    layer = GRU(1, 1, reset="before").double()
    w, u, b = [0.4, -0.3, 0.8], [0.1, 0.5, -0.2], [0.05, 1.0, -0.1]  # r, z, n
    layer.load_state_dict({"weight_input": column(*w), "weight_hidden": column(*u), "bias": column(*b).flatten()})
    h = 0.0
    outputs = []
    for x in X:
        r = sigmoid(w[0] * x + u[0] * h + b[0])
        z = sigmoid(w[1] * x + u[1] * h + b[1])
        n = math.tanh(w[2] * x + b[2] + u[2] * (r * h))
        h = (1 - z) * h + z * n
        outputs.append(h)
    torch.testing.assert_close(layer(sequence())[0].flatten(), column(*outputs).flatten())


def test_the_forget_bias_starts_at_one() -> None:
    i, f, g, o = LSTM(3, 2).bias.detach().chunk(4)
    assert f.tolist() == [1, 1]
    assert not torch.cat((i, g, o)).any()


def test_sinusoidal_positions_equal_their_formula() -> None:
    d = 6
    y, _ = SinusoidalPositions(d)(torch.zeros(1, 12, d))
    for t in (0, 1, 11):
        for i in range(d // 2):
            angle = t / 10_000 ** (2 * i / d)
            assert y[0, t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert y[0, t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_positions_rotate_pairs_of_features() -> None:
    x = torch.tensor([1.0, 0.0, 0.0, 2.0]).view(1, 1, 1, 4)
    y = Rotary(4)(x, torch.tensor([[3]])).flatten()
    slow = 3 / 10_000**0.5
    expected = [math.cos(3), math.sin(3), -2 * math.sin(slow), 2 * math.cos(slow)]
    torch.testing.assert_close(y, torch.tensor(expected))


def test_products_of_rotated_vectors_depend_only_on_the_distance() -> None:
    torch.manual_seed(0)
    rotary = Rotary(8).double()
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def turned(x: Tensor, position: int) -> Tensor:
        return rotary(x, torch.tensor([[position]])).flatten()

    torch.testing.assert_close(turned(q, 9) @ turned(k, 4), turned(q, 5) @ turned(k, 0))
    assert not torch.isclose(turned(q, 9) @ turned(k, 4), turned(q, 9) @ turned(k, 5))
    torch.testing.assert_close(turned(q, 7).norm(), q.norm())
