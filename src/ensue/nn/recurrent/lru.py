"""The linear recurrent unit: a diagonal linear recurrence of complex numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Recurrent, blank
from ensue.nn.recurrent.initialization import gate_bias, input_weight
from ensue.nn.recurrent.scan import scan_any
from ensue.nn.taps import Tap
from ensue.types import Memory, State


class LRUState(NamedTuple):
    """The state s of an `LRU` in its two parts."""

    real: Float[Tensor, "B n"]
    imaginary: Float[Tensor, "B n"]


class LRU(Recurrent):
    """The linear recurrent unit (Orvieto et al. 2023, eqs. 6 to 8) and, as there, a gated linear map after it:

        s' = λ ⊙ s + e^γ ⊙ (B x)        λ = exp(-e^ν + i e^θ)        v = Re(C s') + D x
        g = silu(norm(v))               y = (W g + b) ⊙ σ(V g + c)

    s, λ (n,) and B (n, d_in) are complex. At the start the modulus r of λ is between the numbers of `radius`, its angle
    is below `angle`, and e^γ = √(1 - r²), which keeps s as large as B x. n, `d_state`, is `d_out` unless given.

    `weight_input` (2 n, d_in) stacks the real and the imaginary part of B. `weight_state` (d_out, 2 n) has those of C
    side by side, the second with its sign turned. `weight_output` (2 d_out, d_out) stacks W and V, and `bias` b and c.
    The layer normalization is after the recurrence, so that layers whose input is one number have it, too. Raises
    `ValueError` unless 0 ≤ `radius[0]` < `radius[1]` ≤ 1 and `angle` is above 0.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        d_state: int | None = None,
        radius: tuple[float, float] = (0.9, 0.999),
        angle: float = 0.314,
    ) -> None:
        super().__init__()
        low, high = radius
        if not 0 <= low < high <= 1 or not angle > 0:
            raise ValueError(f"radii ascend from 0 to 1 and the angle is above 0, not {radius} and {angle}")
        self.d_in, self.d_out, self.d_state = d_in, d_out, d_state or d_out
        squared = torch.empty(self.d_state).uniform_(low**2, high**2)
        self.decay = nn.Parameter((-squared.log() / 2).log())
        self.frequency = nn.Parameter(torch.rand(self.d_state).mul(angle).log())
        self.scale = nn.Parameter((1 - squared).log() / 2)
        self.weight_input = nn.Parameter(torch.randn(2 * self.d_state, d_in) / math.sqrt(2 * d_in))
        self.weight_direct = input_weight(1, d_out, d_in)
        self.weight_state = nn.Parameter(torch.randn(d_out, 2 * self.d_state) / math.sqrt(self.d_state))
        self.norm = nn.LayerNorm(d_out)
        self.weight_output, self.bias = input_weight(2, d_out, d_out), gate_bias(2, d_out)
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LRUState:
        zeros = self.decay.new_zeros(batch_size, self.d_state)
        return LRUState(zeros, zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LRUState]:
        real, imaginary = self.init_state(len(x_t)) if state is None else state
        a, b = self._factors()
        u, v = self._driven(x_t).chunk(2, dim=-1)
        s = self.cell(torch.cat((a * real - b * imaginary + u, a * imaginary + b * real + v), dim=-1))
        return self._output(s, x_t), LRUState(*s.chunk(2, dim=-1))

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LRUState]:
        x, start = blank(x, mask), torch.complex(*(self.init_state(len(x)) if state is None else state))
        u = torch.complex(*self._driven(x).to(self.decay.dtype).chunk(2, dim=-1))
        s = scan_any(torch.complex(*self._factors()).expand_as(u), u, start, mask)
        y = self._output(torch.cat((s.real, s.imag), dim=-1), x)
        end = s[:, -1] if x.shape[1] else start
        return blank(y, mask), LRUState(end.real.clone(), end.imag.clone())

    def _factors(self) -> tuple[Tensor, Tensor]:
        """The two parts of λ, (n,)."""
        size, angle = (-self.decay.exp()).exp(), self.frequency.exp()
        return size * angle.cos(), size * angle.sin()

    def _driven(self, x: Tensor) -> Tensor:
        """The two parts of e^γ ⊙ (B x), (..., 2 n)."""
        return F.linear(x, torch.cat((self.scale, self.scale)).exp().unsqueeze(1) * self.weight_input)

    def _output(self, s: Tensor, x: Tensor) -> Tensor:
        """y, from the two parts of s (..., 2 n) and x."""
        v = F.linear(s, self.weight_state) + F.linear(x, self.weight_direct)
        w, gate = F.linear(F.silu(self.norm(v)), self.weight_output, self.bias).chunk(2, dim=-1)
        return self.hidden(w * torch.sigmoid(gate))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_state={self.d_state}"
