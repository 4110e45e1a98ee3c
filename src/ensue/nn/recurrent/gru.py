"""The gated recurrent unit, in the paper's form and in the form of the vendors' kernels."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.vendor import run_kernel
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class GRUState(NamedTuple):
    """The hidden state h, which is the output."""

    h: Float[Tensor, "B d"]


class GRU(Recurrent):
    """The gated recurrent unit (Cho et al. 2014). The reset gate is before or after the candidate's recurrent product:

        r = σ(W_r x + U_r h + b_r)        z = σ(W_z x + U_z h + b_z)
        before:  n = tanh(W_n x + b_n + U_n (r ⊙ h))            h' = (1 - z) ⊙ h + z ⊙ n
        after:   n = tanh(W_n x + b_n + r ⊙ (U_n h + b'_n))     h' = (1 - z) ⊙ n + z ⊙ h

    "before" is the form of the paper. "after" is the form of cuDNN and torch, so `forward` can take their kernel. The
    two forms also swap the roles of z and 1 - z. The weights stack r, z, n in torch's order. Raises `ValueError` for
    another `reset`.
    """

    def __init__(self, d_in: int, d_out: int, *, reset: Literal["before", "after"] = "after") -> None:
        super().__init__()
        if reset not in ("before", "after"):
            raise ValueError(f"reset is before or after, not {reset!r}")
        self.d_in, self.d_out, self.reset = d_in, d_out, reset
        self.weight_input = input_weight(3, d_out, d_in)
        self.weight_hidden = hidden_weight(3, d_out)
        self.bias = gate_bias(3, d_out)
        if reset == "after":
            self.bias_candidate = nn.Parameter(torch.zeros(d_out))
        self.gates = Taps("reset", "update", "candidate")
        self.hidden = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> GRUState:
        return GRUState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], GRUState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        d = self.d_out
        x_rz, x_n = torch.split(F.linear(x_t, self.weight_input, self.bias), [2 * d, d], dim=-1)
        U_rz, U_n = torch.split(self.weight_hidden, [2 * d, d])
        r, z = torch.sigmoid(x_rz + F.linear(h, U_rz)).chunk(2, dim=-1)
        r, z = self.gates.reset(r), self.gates.update(z)
        if self.reset == "before":
            n = self.gates.candidate(torch.tanh(x_n + F.linear(r * h, U_n)))
            h = self.hidden((1 - z) * h + z * n)
        else:
            n = self.gates.candidate(torch.tanh(x_n + r * F.linear(h, U_n, self.bias_candidate)))
            h = self.hidden((1 - z) * n + z * h)
        return h, GRUState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, GRUState] | None:
        if self.reset == "before":
            return None
        state = self.init_state(len(x)) if state is None else state
        bias_hidden = torch.cat((self.bias.new_zeros(2 * self.d_out), self.bias_candidate))
        weights = [self.weight_input, self.weight_hidden, self.bias, bias_hidden]
        y, (h,) = run_kernel(torch.gru, x, state, weights, mask)
        return y, GRUState(h)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reset={self.reset!r}"
