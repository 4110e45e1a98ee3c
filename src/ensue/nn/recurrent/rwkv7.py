"""The time mixing of RWKV-7: a matrix of values by keys that takes back a value at its own rate for each feature."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.delta_rule import DeltaLayer, DeltaRule, DeltaState, LastState, unit
from ensue.nn.recurrent.initialization import gate_bias, input_weight
from ensue.nn.taps import Taps
from ensue.types import Memory, State

NORM_EPSILON = 64e-5
"""Of the normalization of each head, as in the authors' code."""


class RWKV7(DeltaLayer):
    """The time mixing of RWKV-7 (Peng et al. 2025, "Goose", section 4.1). With x_□ = x + μ_□ ⊙ (x⁻ - x), where x⁻ is
    the input before, and for each head:

        r = W_r x_r                 k = W_k x_k         v = W_v x_v         g = B_g σ(A_g x_g)
        w = exp(-e^-½ σ(B_w tanh(A_w x_w) + b_w))       a = σ(B_a A_a x_a + b_a)
        c = unit(ξ ⊙ k)             k' = k ⊙ (1 + α ⊙ (a - 1))
        S' = S (diag(w) - c (a ⊙ c)ᵀ) + v k'ᵀ
        y = W_y (g ⊙ (norm(S' r) + (rᵀ (ρ ⊙ k')) v))

    unit(x) = x / √(Σ x² + 10⁻⁶), and norm is layer normalization. In the paper c is κ̂. There the values of upper layers
    are mixed with those of the first one; a layer by itself has none. The parts are `layer.layers.0`, the maps of x:
    `mix` (6, d_in) has μ for r, k, v, w, a and g, `weight_input` (3 d_out, d_in) stacks W_r, W_k and W_v, `weight_down`
    (4 rank, d_in) A_w, A_a and the twice as wide A_g; `layers.1`, the recurrence: `key` (3, d_out) has ξ, α and ρ; and
    `layers.2`, W_y. Raises `ValueError` unless the heads share `d_out` evenly and `rank` is above 0.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4, rank: int = 32) -> None:
        super().__init__(RWKV7Inputs(d_in, d_out, rank=rank), RWKV7Rule(6 * d_out, d_out, num_heads=num_heads))
        self.rank = rank

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}"


class RWKV7Inputs(Recurrent):
    """r, w, k, v, a and g, side by side."""

    def __init__(self, d_in: int, d_out: int, *, rank: int) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"the rank of a matrix is above 0, not {rank}")
        self.d_in, self.d_out, self.rank = d_in, 6 * d_out, rank
        place = torch.arange(d_in) / d_in
        self.mix = nn.Parameter(torch.stack([1 - place**power for power in (0.2, 0.7, 0.7, 0.9, 0.9, 0.2)]))
        self.weight_input, self.weight_down = input_weight(3, d_out, d_in), input_weight(4, rank, d_in)
        self.weight_decay, self.weight_rate = input_weight(1, d_out, rank), input_weight(1, d_out, rank)
        self.weight_gate = input_weight(1, d_out, 2 * rank)
        self.bias_decay, self.bias_rate = nn.Parameter(torch.linspace(-5.5, 0.5, d_out)), gate_bias(1, d_out)
        self.gates = Taps("forget", "input", "output")

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_out // 6}, rank={self.rank}"

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LastState:
        return LastState(self.mix.new_zeros(batch_size, self.d_in))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LastState]:
        (last,) = self.init_state(len(x_t)) if state is None else state
        mixed = [x_t + mix * (last - x_t) for mix in self.mix]
        r, k, v = (F.linear(x, W) for x, W in zip(mixed[:3], self.weight_input.chunk(3), strict=True))
        A_w, A_a, *A_g = self.weight_down.chunk(4)
        v_w, v_a, v_g = (F.linear(x, A) for x, A in zip(mixed[3:], (A_w, A_a, torch.cat(A_g)), strict=True))
        w = torch.sigmoid(F.linear(torch.tanh(v_w), self.weight_decay, self.bias_decay))
        w = self.gates.forget(torch.exp(-math.exp(-0.5) * w))
        a = self.gates.input(torch.sigmoid(F.linear(v_a, self.weight_rate, self.bias_rate)))
        g = self.gates.output(F.linear(torch.sigmoid(v_g), self.weight_gate))
        return torch.cat((r, w, k, v, a, g), dim=-1), LastState(x_t.clone())


class RWKV7Rule(DeltaRule):
    """The recurrence, from what `RWKV7Inputs` gives."""

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__(d_in, d_out, num_heads=num_heads)
        self.key = nn.Parameter(torch.tensor([[0.85], [1.0], [0.0]]).repeat(1, d_out))
        self.bias = gate_bias(1, d_out)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], DeltaState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        r, w, k, v, a, g = (part.view(len(x_t), self.num_heads, self.d_head) for part in x_t.chunk(6, dim=-1))
        of_removed, of_written, of_bonus = (part.view(self.num_heads, self.d_head) for part in self.key)
        c, k = unit(k * of_removed), k * (1 + of_written * (a - 1))
        removed = (s * c.unsqueeze(-2)).sum(-1, keepdim=True)
        s = s * w.unsqueeze(-2) - removed * (a * c).unsqueeze(-2) + v.unsqueeze(-1) * k.unsqueeze(-2)
        s = self.cell(s.flatten(1)).view_as(s)
        read = F.layer_norm((s * r.unsqueeze(-2)).sum(-1), (self.d_head,), eps=NORM_EPSILON).flatten(1)
        bonus = (r * of_bonus * k).sum(-1, keepdim=True) * v
        return self.hidden(g.flatten(1) * (self.gain * read + self.bias + bonus.flatten(1))), DeltaState(s)
