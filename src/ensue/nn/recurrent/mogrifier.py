"""The Mogrifier LSTM, whose input and state gate each other before each step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.recurrent.initialization import input_weight
from ensue.nn.recurrent.lstm import LSTMState, LSTMVariant
from ensue.types import State


class MogrifierLSTM(LSTMVariant):
    """An LSTM whose x and h scale each other in turns before it reads them (Melis, Kočiský & Blunsom 2020, eqs. 1, 2).
    With x⁻¹ = x, h⁰ = h and i from 1 to `rounds`:

        xⁱ = 2 σ(Qⁱ hⁱ⁻¹) ⊙ xⁱ⁻²  for odd i        hⁱ = 2 σ(Rⁱ xⁱ⁻¹) ⊙ hⁱ⁻²  for even i

    The last of each are what the LSTM reads; without rounds it is an LSTM. `weight_round_0` is Q¹ (d_in, d_out),
    `weight_round_1` R² (d_out, d_in), and so on. The LSTM's stack i, f, g, o. Raises `ValueError` if `rounds` < 0.
    """

    def __init__(self, d_in: int, d_out: int, *, rounds: int = 5) -> None:
        super().__init__(d_in, d_out)
        if rounds < 0:
            raise ValueError(f"there are no {rounds} rounds")
        self.rounds = [f"weight_round_{i}" for i in range(rounds)]
        for name, size in zip(self.rounds, ((d_in, d_out), (d_out, d_in)) * rounds, strict=False):
            self.register_parameter(name, input_weight(1, *size))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        scaled, other = x_t, h
        for name in self.rounds:
            scaled, other = other, 2 * torch.sigmoid(F.linear(other, getattr(self, name))) * scaled
        x, h = (scaled, other) if len(self.rounds) % 2 == 0 else (other, scaled)
        z = F.linear(x, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(o * torch.tanh(c))
        return h, LSTMState(h, c)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rounds={len(self.rounds)}"
