"""Gated DeltaNet: a matrix of values by keys, which forgets, and in which a new value replaces that of its key."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.delta_rule import DeltaLayer, DeltaRule, DeltaState, LastState, unit
from ensue.nn.recurrent.initialization import input_weight
from ensue.nn.taps import Taps
from ensue.types import Memory, State

WINDOW = 4
"""Positions of the short convolution, as in the paper."""


class GatedDeltaNet(DeltaLayer):
    """Gated DeltaNet (Yang, Kautz & Hatamizadeh 2025, eq. 10 and section 3.4). For each head:

        q, k = unit(silu(conv(W x)))        v = silu(conv(W_v x))
        β = σ(w_β x)                        α = exp(-e^a softplus(w_α x + b))
        S' = α S (I - β k kᵀ) + β v kᵀ      y = W_y (rms(S' q) ⊙ silu(W_g x))

    unit(x) = x / √(Σ x² + 10⁻⁶), conv is a causal convolution over 4 positions, feature by feature, and rms divides by
    √(mean x² + 10⁻⁶) and multiplies by `gain`. α and β are one number for a head. The parts are `layer.layers.0`, the
    maps of x: `weight_input` (4 d_out, d_in) stacks W_q, W_k, W_v and W_g, `weight_gates` (2 num_heads, d_in) w_α and
    w_β; `layers.1`, the recurrence; and `layers.2`, W_y. α starts as that of Mamba2: e^a between 1 and 16, and
    softplus(b) between 0.001 and 0.1. Raises `ValueError` unless the heads share `d_out` evenly.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        rule = GatedDeltaRule(4 * d_out + 2 * num_heads, d_out, num_heads=num_heads)
        super().__init__(GatedDeltaInputs(d_in, d_out, num_heads=num_heads), rule)


class GatedDeltaInputs(Recurrent):
    """q, k and v before they are units, silu(W_g x), α and β, side by side."""

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__()
        self.d_in, self.d_values, self.d_out = d_in, d_out, 4 * d_out + 2 * num_heads
        self.weight_input, self.weight_gates = input_weight(4, d_out, d_in), input_weight(2, num_heads, d_in)
        self.weight_window = nn.Parameter(torch.empty(WINDOW, 3 * d_out).uniform_(-0.5, 0.5))
        self.decay = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        times = torch.empty(num_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.bias = nn.Parameter(times.expm1().log())  # the inverse of softplus
        self.gates = Taps("forget", "input", "output")

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_values}, num_heads={len(self.decay)}"

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LastState:
        return LastState(self.bias.new_zeros(batch_size, (WINDOW - 1) * 3 * self.d_values))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LastState]:
        (last,) = self.init_state(len(x_t)) if state is None else state
        of_x, size = F.linear(x_t, self.weight_input), 3 * self.d_values
        seen = (*last.chunk(WINDOW - 1, dim=-1), of_x[:, :size])
        parts = (w * part for w, part in zip(self.weight_window, seen, strict=True))
        qkv = F.silu(sum(parts, torch.zeros_like(seen[0])))
        v_f, v_i = F.linear(x_t, self.weight_gates).chunk(2, dim=-1)
        f = self.gates.forget(torch.exp(-self.decay.exp() * F.softplus(v_f + self.bias)))
        i, gate = self.gates.input(torch.sigmoid(v_i)), self.gates.output(F.silu(of_x[:, size:]))
        return torch.cat((qkv, gate, f, i), dim=-1), LastState(torch.cat(seen[1:], dim=-1))


class GatedDeltaRule(DeltaRule):
    """The recurrence, from what `GatedDeltaInputs` gives."""

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], DeltaState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        of_x, (f, i) = x_t[:, : 4 * self.d_out], x_t[:, 4 * self.d_out :].chunk(2, dim=-1)
        q, k, v, gate = (part.view(len(x_t), self.num_heads, self.d_head) for part in of_x.chunk(4, dim=-1))
        s, k = f.unsqueeze(-1).unsqueeze(-1) * s, unit(k).unsqueeze(-2)
        s = s + (i.unsqueeze(-1) * (v - (s * k).sum(-1))).unsqueeze(-1) * k
        s = self.cell(s.flatten(1)).view_as(s)
        read = (s * unit(q).unsqueeze(-2)).sum(-1)
        read = read * torch.rsqrt((read * read).mean(-1, keepdim=True) + 1e-6) * gate
        return self.hidden(self.gain * read.flatten(1)), DeltaState(s)
