"""Recurrent layers whose gates look at the input only, so that a scan can run them: minGRU and minLSTM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn.engine.c_library import compiler
from ensue.nn.initialization import gate_bias, input_weight
from ensue.nn.layer import Recurrent, blank
from ensue.nn.scan import scan
from ensue.nn.taps import Tap, Taps, is_watched
from ensue.types import Memory, State


class MinimalState(NamedTuple):
    h: Float[Tensor, "B d"]


class Minimal(Recurrent, ABC):
    """`h' = a ⊙ h + b` with a and b that depend on x alone; `h_0 = 0`. A layer says what they are."""

    def __init__(self, d_in: int, d_out: int, *, gates: tuple[str, ...]) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight_input = input_weight(len(gates) + 1, d_out, d_in)
        self.bias = gate_bias(len(gates) + 1, d_out)
        self.gates = Taps(*gates, "candidate")
        self.hidden = Tap()

    @abstractmethod
    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor]:
        """a and b (*positions, d_out) of one or many positions."""

    def preactivations(self, x: Tensor) -> tuple[Tensor, ...]:
        """Those of the gates and of the candidate, each (*positions, d_out).

        Under autocast the product is in its type, and they are not: bfloat16 has no number between 1 and 0.996, which
        is where a gate that remembers lives.
        """
        v = F.linear(x, self.weight_input, self.bias)
        return v.to(self.weight_input.dtype).chunk(len(self.bias) // self.d_out, dim=-1)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> MinimalState:
        return MinimalState(self.weight_input.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], MinimalState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a, b = self.coefficients(x_t)
        h = self.hidden(a * h + b)
        return h, MinimalState(h)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], MinimalState]:
        # Compiled, one loop over positions with the gates inside it reads and writes less than a scan beside them.
        if is_watched(self) or (x.device.type == "cpu" and compiler() is not None):
            return super().forward(x, state, mask=mask)
        return self.by_scan(x, state, mask=mask)

    def by_scan(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], MinimalState]:
        """`forward` with all positions at once: on GPUs, and on CPUs without a compiler."""
        (start,) = self.init_state(len(x)) if state is None else state
        a, b = self.coefficients(blank(x, mask))
        h = scan(a, b, start, mask=mask)
        # A copy, so that a state does not keep the whole sequence in memory.
        return h, MinimalState(h[:, -1].clone() if h.shape[1] else start)


class MinGRU(Minimal):
    """Feng et al. 2024, "Were RNNs all we needed?": a GRU without reset gate, whose gate and candidate see x only:

        z = σ(W_z x + b_z)        n = g(W_n x + b_n)        h' = (1 - z) ⊙ h + z ⊙ n

        g(v) = v + 0.5 where v ≥ 0, else σ(v)

    The paper's g makes n, and so h, positive, since it trains by sums of logarithms; the scan here needs none, and g is
    kept because it is the published layer. The weights stack z, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("update",))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor]:
        v_z, v_n = self.preactivations(x)
        z, n = self.gates.update(torch.sigmoid(v_z)), self.gates.candidate(positive(v_n))
        return 1 - z, z * n


class MinLSTM(Minimal):
    """Feng et al. 2024: an LSTM without output gate, whose gates see x only and share what they let through:

        f = σ(W_f x + b_f)        i = σ(W_i x + b_i)        n = g(W_n x + b_n)
        f' = f / (f + i)          i' = i / (f + i)          h' = f' ⊙ h + i' ⊙ n

    with the g of `MinGRU`. Computed as f' = σ(log f - log i), i' = σ(log i - log f), it needs no quotient of numbers
    that may both vanish. The taps see f' and i'. The weights stack f, i, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("forget", "input"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor]:
        v_f, v_i, v_n = self.preactivations(x)
        k = F.softplus(-v_i) - F.softplus(-v_f)  # log f - log i
        f, i = self.gates.forget(torch.sigmoid(k)), self.gates.input(torch.sigmoid(-k))
        return f, i * self.gates.candidate(positive(v_n))


def positive(v: Tensor) -> Tensor:
    """The paper's g: v + 0.5 where v ≥ 0, else σ(v); continuous, increasing and above zero."""
    return F.relu(v) + torch.sigmoid(v.clamp(max=0))
