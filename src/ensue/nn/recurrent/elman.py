"""The simple recurrent network of Elman (1990)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, hidden_weight, input_weight
from ensue.nn.recurrent.vendor import run_kernel
from ensue.nn.taps import Tap
from ensue.types import Memory, State


class ElmanState(NamedTuple):
    """The hidden state h, which is the output."""

    h: Float[Tensor, "B d"]


class Elman(Recurrent):
    """`h_t = g(U h_{t-1} + W x_t + b)`, with g = tanh or ReLU; the output is h_t (Elman 1990; SLP ch. 9).

    Raises `ValueError` for another `activation`.
    """

    def __init__(self, d_in: int, d_out: int, *, activation: Literal["tanh", "relu"] = "tanh") -> None:
        super().__init__()
        if activation not in ("tanh", "relu"):
            raise ValueError(f"activation is tanh or relu, not {activation!r}")
        self.d_in, self.d_out, self.activation = d_in, d_out, activation
        self.weight_input = input_weight(1, d_out, d_in)
        self.weight_hidden = hidden_weight(1, d_out)
        self.bias = gate_bias(1, d_out)
        self.zero_bias: Tensor
        self.register_buffer("zero_bias", torch.zeros(d_out), persistent=False)
        self.hidden = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ElmanState:
        return ElmanState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        g = torch.tanh if self.activation == "tanh" else torch.relu
        h = self.hidden(g(F.linear(x_t, self.weight_input, self.bias) + F.linear(h, self.weight_hidden)))
        return h, ElmanState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, ElmanState]:
        state = self.init_state(len(x)) if state is None else state
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        weights = [self.weight_input, self.weight_hidden, self.bias, self.zero_bias]
        y, (h,) = run_kernel(kernel, x, state, weights, mask)
        return y, ElmanState(h)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation!r}"
