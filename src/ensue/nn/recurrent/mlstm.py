"""The mLSTM of the xLSTM: cells that are matrices."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import gate_bias, heads_of, input_weight
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class MLSTMState(NamedTuple):
    """The cell c, its normalizer n, and the stabilizer m, for each of k heads."""

    c: Float[Tensor, "B k d d"]
    n: Float[Tensor, "B k d"]
    m: Float[Tensor, "B k"]


class MLSTM(Recurrent):
    """The LSTM with matrix memory of the xLSTM (Beck et al. 2024, eqs. 19 to 27). For each head, with d features:

        q = W_q x        k = W_k x / √d        v = W_v x        i = exp(w_i x + b_i)        f = σ(w_f x + b_f)
        C' = f C + i v kᵀ        n' = f n + i k        h = σ(W_o x + b_o) ⊙ C' q / max(abs(n'ᵀ q), 1)

    Stabilized: m' = max(log f + m, log i); C and n are kept divided by e^m, as in `SLSTM`. The gates i and f are one
    number for a head. `weight_input` (4 d_out, d_in) stacks W_q, W_k, W_v and W_o, each head by head, `weight_gates`
    (2 num_heads, d_in) w_i and w_f. The bias of f starts at 3. Raises `ValueError` unless the heads share `d_out`
    evenly.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        super().__init__()
        self.d_in, self.d_out, self.num_heads, self.d_head = d_in, d_out, num_heads, heads_of(d_out, num_heads)
        self.weight_input, self.bias = input_weight(4, d_out, d_in), gate_bias(1, d_out)
        self.weight_gates, self.bias_gates = input_weight(2, num_heads, d_in), gate_bias(2, num_heads, forget=1)
        self.bias_gates.data.mul_(3)
        self.gates, self.cell, self.hidden = Taps("input", "forget", "output"), Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> MLSTMState:
        d = self.d_head
        return MLSTMState(*(self.bias.new_zeros(batch_size, self.num_heads, *size) for size in ((d, d), (d,), ())))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MLSTMState]:
        c, n, m = self.init_state(len(x_t)) if state is None else state
        of_x = F.linear(x_t, self.weight_input).chunk(4, dim=-1)
        q, k, v = (part.view(len(x_t), self.num_heads, self.d_head) for part in of_x[:3])
        k = k / math.sqrt(self.d_head)
        v_i, v_f = F.linear(x_t, self.weight_gates, self.bias_gates).chunk(2, dim=-1)
        remembered = F.logsigmoid(v_f) + m
        m = torch.maximum(remembered, v_i)
        i = self.gates.input(torch.exp(v_i - m)).unsqueeze(-1)
        f = self.gates.forget(torch.exp(remembered - m)).unsqueeze(-1)
        c = f.unsqueeze(-1) * c + (i * v).unsqueeze(-1) * k.unsqueeze(-2)
        c = self.cell(c.flatten(1)).view_as(c)
        n = f * n + i * k
        size = torch.maximum((n * q).sum(-1).abs(), torch.exp(-m)).unsqueeze(-1)
        read = (c * q.unsqueeze(-2)).sum(-1) / size
        h = self.hidden(self.gates.output(torch.sigmoid(of_x[3] + self.bias)) * read.flatten(1))
        return h, MLSTMState(c, n, m)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_heads={self.num_heads}"
