"""HGRN2, gated DeltaNet and RWKV-7: layers with a recurrence of matrices between maps of the input and the output."""

import math
from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.combinators import Stack
from ensue.nn.layer import Pointwise, Recurrent, Wrapper
from ensue.nn.recurrent.initialization import features_per_head, gate_bias, input_weight
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class LastState(NamedTuple):
    """The last inputs of a convolution or token shift, concatenated, the oldest first."""

    last: Float[Tensor, "B inputs"]


class MatrixState(NamedTuple):
    """The matrix S of each of k heads, (value features, key features)."""

    s: Float[Tensor, "B k d d"]


DeltaState = MatrixState  # the former name


class MatrixRecurrence(Recurrent):
    """The recurrence of a `MatrixLayer`; a subclass defines `step`."""

    repr_arguments = ("d_in", "d_out", "num_heads")

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__()
        self.d_in, self.d_out, self.num_heads, self.d_head = d_in, d_out, num_heads, features_per_head(d_out, num_heads)
        self.gain = nn.Parameter(torch.ones(d_out))
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> MatrixState:
        return MatrixState(self.gain.new_zeros(batch_size, self.num_heads, self.d_head, self.d_head))


class MatrixLayer(Wrapper):
    """A stack of `layers` (a map of the input), the recurrence `rule`, and a linear map of the output.

    Products with weights do not depend on the state, so they are outside of the loop over positions.
    """

    @abstractmethod
    def __init__(self, *layers: Recurrent, rule: MatrixRecurrence) -> None:
        last = Pointwise(nn.Linear(rule.d_out, rule.d_out, bias=False), d_in=rule.d_out)
        super().__init__(Stack([*layers, rule, last]))
        self.num_heads = rule.num_heads

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_out}, num_heads={self.num_heads}"


def unit(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    """Return x / √(Σ x² + 10⁻⁶), which has length 1 unless x is near 0."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


class HGRN2(MatrixLayer):
    """HGRN2, a linear recurrence of matrices (Qin et al. 2024). For each head:

        q = silu(W_q x)      f = γ + (1 - γ) ⊙ σ(W_f x)      v = W_v x
        S' = S diag(f) + v (1 - f)ᵀ      y = W_y rms(S' q)

    γ = σ(`bound`) is the lower bound of the forget gates. In the paper, bounds rise from layer to layer; here they rise
    over the d features of a head, initially from 1/(2d) to 1 - 1/(2d). rms is as in `GatedDeltaNet`, but over all
    heads. The submodule `layer.layers.0` is the recurrence, whose `weight_input` (3 d_out, d_in) stacks W_q, W_f and
    W_v, and `layer.layers.1` is W_y. Raises ValueError unless `num_heads` divides `d_out`.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        super().__init__(rule=HGRN2Recurrence(d_in, d_out, num_heads=num_heads))


class HGRN2Recurrence(MatrixRecurrence):
    """The gates and the recurrence of `HGRN2`."""

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__(d_in, d_out, num_heads=num_heads)
        self.weight_input = input_weight(3, d_out, d_in)
        self.bound = nn.Parameter(((torch.arange(self.d_head) + 0.5) / self.d_head).logit().repeat(num_heads))
        self.gates = Taps("forget")

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MatrixState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        v_q, v_f, v = F.linear(x_t, self.weight_input).chunk(3, dim=-1)
        bound = torch.sigmoid(self.bound)
        f = self.gates.forget(bound + (1 - bound) * torch.sigmoid(v_f))
        q, f, v = (chunk.view(len(x_t), self.num_heads, self.d_head) for chunk in (F.silu(v_q), f, v))
        s = f.unsqueeze(-2) * s + v.unsqueeze(-1) * (1 - f).unsqueeze(-2)
        s = self.cell(s.flatten(1)).view_as(s)
        output = (s * q.unsqueeze(-2)).sum(-1).flatten(1)
        output = output * torch.rsqrt((output * output).mean(-1, keepdim=True) + 1e-6)
        return self.hidden(self.gain * output), MatrixState(s)


WINDOW = 4
"""The number of positions of the short convolution, as in the paper."""


class GatedDeltaNet(MatrixLayer):
    """Gated DeltaNet (Yang, Kautz & Hatamizadeh 2025, eq. 10 and section 3.4). For each head:

        q, k = unit(silu(conv(W x)))        v = silu(conv(W_v x))
        β = σ(w_β x)                        α = exp(-e^a softplus(w_α x + b))
        S' = α S (I - β k kᵀ) + β v kᵀ      y = W_y (rms(S' q) ⊙ silu(W_g x))

    unit(x) = x / √(Σ x² + 10⁻⁶). conv is a causal convolution of each feature over 4 positions. rms divides by
    √(mean x² + 10⁻⁶) in each head and multiplies by `gain`. A head has one α and one β. As in Mamba2, e^a starts
    between 1 and 16, and softplus(b) between 0.001 and 0.1. There are three submodules:

    - `layer.layers.0` maps x: `weight_input` (4 d_out, d_in) stacks W_q, W_k, W_v and W_g; `weight_gates`
      (2 num_heads, d_in) stacks w_α and w_β.
    - `layer.layers.1` is the recurrence.
    - `layer.layers.2` is W_y.

    Raises ValueError unless `num_heads` divides `d_out`.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4) -> None:
        rule = GatedDeltaRule(4 * d_out + 2 * num_heads, d_out, num_heads=num_heads)
        super().__init__(GatedDeltaInputs(d_in, d_out, num_heads=num_heads), rule=rule)


class GatedDeltaInputs(Recurrent):
    """The maps from x to q and k (before `unit`), v, silu(W_g x), α and β. The results are concatenated."""

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
        W_x, size = F.linear(x_t, self.weight_input), 3 * self.d_values
        window = (*last.chunk(WINDOW - 1, dim=-1), W_x[:, :size])
        terms = (w * features for w, features in zip(self.weight_window, window, strict=True))
        qkv = F.silu(sum(terms, torch.zeros_like(window[0])))
        v_f, v_i = F.linear(x_t, self.weight_gates).chunk(2, dim=-1)
        f = self.gates.forget(torch.exp(-self.decay.exp() * F.softplus(v_f + self.bias)))
        i, gate = self.gates.input(torch.sigmoid(v_i)), self.gates.output(F.silu(W_x[:, size:]))
        return torch.cat((qkv, gate, f, i), dim=-1), LastState(torch.cat(window[1:], dim=-1))


class GatedDeltaRule(MatrixRecurrence):
    """The recurrence of `GatedDeltaNet`, which reads the output of `GatedDeltaInputs`."""

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MatrixState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        qkvg, (f, i) = x_t[:, : 4 * self.d_out], x_t[:, 4 * self.d_out :].chunk(2, dim=-1)
        q, k, v, gate = (chunk.view(len(x_t), self.num_heads, self.d_head) for chunk in qkvg.chunk(4, dim=-1))
        s, k = f.unsqueeze(-1).unsqueeze(-1) * s, unit(k).unsqueeze(-2)
        s = s + (i.unsqueeze(-1) * (v - (s * k).sum(-1))).unsqueeze(-1) * k
        s = self.cell(s.flatten(1)).view_as(s)
        output = (s * unit(q).unsqueeze(-2)).sum(-1)
        output = output * torch.rsqrt((output * output).mean(-1, keepdim=True) + 1e-6) * gate
        return self.hidden(self.gain * output.flatten(1)), MatrixState(s)


NORM_EPSILON = 64e-5
"""The ε of the normalization of each head, as in the authors' code."""


class RWKV7(MatrixLayer):
    """The time mixing of RWKV-7 (Peng et al. 2025, "Goose", section 4.1). With x_□ = x + μ_□ ⊙ (x⁻ - x), where x⁻ is
    the input before, and for each head:

        r = W_r x_r                 k = W_k x_k         v = W_v x_v         g = B_g σ(A_g x_g)
        w = exp(-e^-½ σ(B_w tanh(A_w x_w) + b_w))       a = σ(B_a A_a x_a + b_a)
        c = unit(ξ ⊙ k)             k' = k ⊙ (1 + α ⊙ (a - 1))
        S' = S (diag(w) - c (a ⊙ c)ᵀ) + v k'ᵀ
        y = W_y (g ⊙ (norm(S' r) + (rᵀ (ρ ⊙ k')) v))

    unit(x) = x / √(Σ x² + 10⁻⁶), and norm is layer normalization. c is κ̂ in the paper, where upper layers also mix
    their values with the values of the first layer; this layer does not. There are three submodules:

    - `layer.layers.0` maps x: `mix` (6, d_in) has μ for r, k, v, w, a and g; `weight_input` (3 d_out, d_in) stacks W_r,
      W_k and W_v; `weight_down` (4 rank, d_in) stacks A_w, A_a and A_g, which has 2 rank rows.
    - `layer.layers.1` is the recurrence: `key` (3, d_out) has ξ, α and ρ.
    - `layer.layers.2` is W_y.

    Raises ValueError unless `num_heads` divides `d_out` and `rank` is above 0.
    """

    def __init__(self, d_in: int, d_out: int, *, num_heads: int = 4, rank: int = 32) -> None:
        super().__init__(RWKV7Inputs(d_in, d_out, rank=rank), rule=RWKV7Rule(6 * d_out, d_out, num_heads=num_heads))
        self.rank = rank

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}"


class RWKV7Inputs(Recurrent):
    """The maps from x to r, w, k, v, a and g, concatenated. The initial μ are as in the authors' first layer."""

    def __init__(self, d_in: int, d_out: int, *, rank: int) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"the rank of a matrix must be above 0, found {rank}")
        self.d_in, self.d_out, self.rank = d_in, 6 * d_out, rank
        fraction = torch.arange(d_in) / d_in
        self.mix = nn.Parameter(torch.stack([1 - fraction**power for power in (0.2, 0.7, 0.7, 0.9, 0.9, 0.2)]))
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


class RWKV7Rule(MatrixRecurrence):
    """The recurrence of `RWKV7`, which reads the output of `RWKV7Inputs`."""

    def __init__(self, d_in: int, d_out: int, *, num_heads: int) -> None:
        super().__init__(d_in, d_out, num_heads=num_heads)
        self.key = nn.Parameter(torch.tensor([[0.85], [1.0], [0.0]]).repeat(1, d_out))
        self.bias = gate_bias(1, d_out)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MatrixState]:
        (s,) = self.init_state(len(x_t)) if state is None else state
        r, w, k, v, a, g = (chunk.view(len(x_t), self.num_heads, self.d_head) for chunk in x_t.chunk(6, dim=-1))
        xi, alpha, rho = (row.view(self.num_heads, self.d_head) for row in self.key)
        c, k = unit(k * xi), k * (1 + alpha * (a - 1))
        removed = (s * c.unsqueeze(-2)).sum(-1, keepdim=True)
        s = s * w.unsqueeze(-2) - removed * (a * c).unsqueeze(-2) + v.unsqueeze(-1) * k.unsqueeze(-2)
        s = self.cell(s.flatten(1)).view_as(s)
        output = F.layer_norm((s * r.unsqueeze(-2)).sum(-1), (self.d_head,), eps=NORM_EPSILON).flatten(1)
        bonus = (r * rho * k).sum(-1, keepdim=True) * v
        return self.hidden(g.flatten(1) * (self.gain * output + self.bias + bonus.flatten(1))), MatrixState(s)
