"""The layers of the xLSTM: the sLSTM, with an exponential input gate, and the mLSTM, with matrices as cells."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.initialization import features_per_head, gate_bias, hidden_weight, input_weight
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class SLSTMState(NamedTuple):
    """The hidden state h, which is the output, the cell c, its normalizer n, and the stabilizer m."""

    h: Float[Tensor, "B d"]
    c: Float[Tensor, "B d"]
    n: Float[Tensor, "B d"]
    m: Float[Tensor, "B d"]


class SLSTM(Recurrent):
    """The sLSTM of the xLSTM, with scalar cells (Beck et al. 2024, eqs. 8 to 17):

        z = tanh(W_z x + U_z h + b_z)       i = exp(W_i x + U_i h + b_i)
        f = σ(W_f x + U_f h + b_f)          o = σ(W_o x + U_o h + b_o)
        c' = f ⊙ c + i ⊙ z                  n' = f ⊙ n + i             h' = o ⊙ c' / n'

    For stability, c and n are stored divided by e^m with m' = max(log f + m, log i). So f becomes exp(log f + m - m'),
    and i becomes exp(log i - m'); h' stays the same. U is block-diagonal, with a block for each head: `weight_hidden`
    (4 d, d / num_heads) stacks heads, and in each head i, f, z, o. `weight_input` (4 d, d_in) and `bias` stack i, f,
    z, o. The forget bias starts at 3. Raises ValueError unless `num_heads` divides `d_out`.
    """

    repr_arguments = ("d_in", "d_out", "num_heads")

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        super().__init__()
        self.d_in, self.d_out, self.num_heads = d_in, d_out, num_heads
        self.weight_input = input_weight(4, d_out, d_in)
        self.weight_hidden = hidden_weight(4 * num_heads, features_per_head(d_out, num_heads))
        self.bias = gate_bias(4, d_out, forget=1)
        self.bias.data.mul_(3)
        self.gates = Taps("input", "forget", "candidate", "output")
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> SLSTMState:
        zeros = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return SLSTMState(zeros, zeros, zeros, zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], SLSTMState]:
        h, c, n, m = self.init_state(len(x_t)) if state is None else state
        heads = zip(h.chunk(self.num_heads, dim=-1), self.weight_hidden.chunk(self.num_heads), strict=True)
        U_h = zip(*(F.linear(h_k, U_k).chunk(4, dim=-1) for h_k, U_k in heads), strict=True)
        W_x = F.linear(x_t, self.weight_input, self.bias).chunk(4, dim=-1)
        v_i, v_f, v_z, v_o = (v + torch.cat(blocks, dim=-1) for v, blocks in zip(W_x, U_h, strict=True))
        log_past = torch.where(n == 0, v_i, F.logsigmoid(v_f) + m)  # at the first position (n = 0), m depends on i only
        m = torch.maximum(log_past, v_i)
        i, f = self.gates.input(torch.exp(v_i - m)), self.gates.forget(torch.exp(log_past - m))
        z, o = self.gates.candidate(torch.tanh(v_z)), self.gates.output(torch.sigmoid(v_o))
        c, n = self.cell(f * c + i * z), f * n + i
        h = self.hidden(o * c / n)
        return h, SLSTMState(h, c, n, m)


class MLSTMState(NamedTuple):
    """The cell c, its normalizer n, and the stabilizer m, for each of k heads."""

    c: Float[Tensor, "B k d d"]
    n: Float[Tensor, "B k d"]
    m: Float[Tensor, "B k"]


class MLSTM(Recurrent):
    """The mLSTM of the xLSTM, with matrices as cells (Beck et al. 2024, eqs. 19 to 27). For each head of d features:

        q = W_q x        k = W_k x / √d        v = W_v x        i = exp(w_i x + b_i)        f = σ(w_f x + b_f)
        C' = f C + i v kᵀ        n' = f n + i k        h = σ(W_o x + b_o) ⊙ C' q / max(abs(n'ᵀ q), 1)

    C and n are stored divided by e^m, as in `SLSTM`. The gates i and f are one number for a head. `weight_input`
    (4 d_out, d_in) stacks W_q, W_k, W_v and W_o, each of which stacks heads; `weight_gates` (2 num_heads, d_in) stacks
    w_i and w_f. The bias of f starts at 3. Raises ValueError unless `num_heads` divides `d_out`.
    """

    repr_arguments = ("d_in", "d_out", "num_heads")

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        super().__init__()
        self.d_in, self.d_out, self.num_heads, self.d_head = d_in, d_out, num_heads, features_per_head(d_out, num_heads)
        self.weight_input, self.bias = input_weight(4, d_out, d_in), gate_bias(1, d_out)
        self.weight_gates, self.bias_gates = input_weight(2, num_heads, d_in), gate_bias(2, num_heads, forget=1)
        self.bias_gates.data.mul_(3)
        self.gates, self.cell, self.hidden = Taps("input", "forget", "output"), Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> MLSTMState:
        d = self.d_head
        return MLSTMState(*(self.bias.new_zeros(batch_size, self.num_heads, *size) for size in ((d, d), (d,), ())))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MLSTMState]:
        c, n, m = self.init_state(len(x_t)) if state is None else state
        W_x = F.linear(x_t, self.weight_input).chunk(4, dim=-1)
        q, k, v = (chunk.view(len(x_t), self.num_heads, self.d_head) for chunk in W_x[:3])
        k = k / math.sqrt(self.d_head)
        v_i, v_f = F.linear(x_t, self.weight_gates, self.bias_gates).chunk(2, dim=-1)
        log_past = F.logsigmoid(v_f) + m
        m = torch.maximum(log_past, v_i)
        i = self.gates.input(torch.exp(v_i - m)).unsqueeze(-1)
        f = self.gates.forget(torch.exp(log_past - m)).unsqueeze(-1)
        c = f.unsqueeze(-1) * c + (i * v).unsqueeze(-1) * k.unsqueeze(-2)
        c = self.cell(c.flatten(1)).view_as(c)
        n = f * n + i * k
        divisor = torch.maximum((n * q).sum(-1).abs(), torch.exp(-m)).unsqueeze(-1)
        output = (c * q.unsqueeze(-2)).sum(-1) / divisor
        h = self.hidden(self.gates.output(torch.sigmoid(W_x[3] + self.bias)) * output.flatten(1))
        return h, MLSTMState(c, n, m)
