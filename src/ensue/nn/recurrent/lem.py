"""Long expressive memory: a recurrent layer with two learned time scales."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class LEMState(NamedTuple):
    """The hidden state y, which is the output, and the memory z."""

    y: Float[Tensor, "B d"]
    z: Float[Tensor, "B d"]


class LEM(Recurrent):
    """Long expressive memory (Rusch, Mishra, Erichson & Mahoney 2022, eq. 3):

        a = Δt σ(W_a x + U_a y + b_a)                   b = Δt σ(W_b x + U_b y + b_b)
        z' = (1 - a) ⊙ z + a ⊙ tanh(W_z x + U_z y + b_z)
        y' = (1 - b) ⊙ y + b ⊙ tanh(W_y x + U_y z' + b_y)

    a and b are the time steps of a differential equation in z and y. Δt, `longest_step`, is the longest. The weights
    stack a, b, z, y. Raises `ValueError` unless Δt is above 0 and at most 1.
    """

    def __init__(self, d_in: int, d_out: int, *, longest_step: float = 1.0) -> None:
        super().__init__()
        if not 0 < longest_step <= 1:
            raise ValueError(f"longest_step is above 0 and at most 1, not {longest_step}")
        self.d_in, self.d_out, self.longest_step = d_in, d_out, longest_step
        self.weight_input, self.weight_hidden = input_weight(4, d_out, d_in), hidden_weight(4, d_out)
        self.bias = gate_bias(4, d_out)
        self.gates, self.memory, self.hidden = Taps("memory", "hidden"), Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LEMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return LEMState(zeros, zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LEMState]:
        y, z = self.init_state(len(x_t)) if state is None else state
        of_y, of_z = self.weight_hidden[: 3 * self.d_out], self.weight_hidden[3 * self.d_out :]
        of_x = F.linear(x_t, self.weight_input, self.bias)
        v_a, v_b, v_z = (of_x[:, : 3 * self.d_out] + F.linear(y, of_y)).chunk(3, dim=-1)
        a = self.gates.memory(self.longest_step * torch.sigmoid(v_a))
        b = self.gates.hidden(self.longest_step * torch.sigmoid(v_b))
        z = self.memory((1 - a) * z + a * torch.tanh(v_z))
        y = self.hidden((1 - b) * y + b * torch.tanh(of_x[:, 3 * self.d_out :] + F.linear(z, of_z)))
        return y, LEMState(y, z)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, longest_step={self.longest_step}"
