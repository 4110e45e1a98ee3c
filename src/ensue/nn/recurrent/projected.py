"""Long short-term memory whose output is a projection of a larger cell."""

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


class ProjectedLSTMState(NamedTuple):
    """The output h and the cell c of a `ProjectedLSTM`."""

    h: Float[Tensor, "B d_out"]
    c: Float[Tensor, "B d_cell"]


class ProjectedLSTM(Recurrent):
    """An LSTM whose output h is a projection of a larger cell (Sak, Senior & Beaufays 2014, without their peepholes):

        i = σ(W_i x + U_i h + b_i)        f = σ(W_f x + U_f h + b_f)
        g = tanh(W_g x + U_g h + b_g)     o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + i ⊙ g                h' = W_p (o ⊙ tanh(c'))

    Gates and cell are (d_cell,); W is (4 d_cell, d_in), U (4 d_cell, d_out), W_p (d_out, d_cell). The weights stack
    i, f, g, o in torch's order. The forget bias starts at 1.
    """

    def __init__(self, d_in: int, d_out: int, *, d_cell: int) -> None:
        super().__init__()
        self.d_in, self.d_out, self.d_cell = d_in, d_out, d_cell
        self.weight_input = input_weight(4, d_cell, d_in)
        self.weight_hidden = hidden_weight(4, d_cell, d_out)
        self.bias = gate_bias(4, d_cell, forget=1)
        self.weight_projection = input_weight(1, d_out, d_cell)
        self.gates = Taps("input", "forget", "candidate", "output")
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ProjectedLSTMState:
        zeros = self.weight_hidden.new_zeros
        return ProjectedLSTMState(h=zeros(batch_size, self.d_out), c=zeros(batch_size, self.d_cell))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], ProjectedLSTMState]:
        h, c = self.init_state(len(x_t)) if state is None else state
        z = F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)
        z_i, z_f, z_g, z_o = z.chunk(4, dim=-1)
        i, f = self.gates.input(torch.sigmoid(z_i)), self.gates.forget(torch.sigmoid(z_f))
        g, o = self.gates.candidate(torch.tanh(z_g)), self.gates.output(torch.sigmoid(z_o))
        c = self.cell(f * c + i * g)
        h = self.hidden(F.linear(o * torch.tanh(c), self.weight_projection))
        return h, ProjectedLSTMState(h, c)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_cell={self.d_cell}"
