"""minGRU and minLSTM: gated layers whose gates look at the input only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.recurrent.linear_recurrence import LinearRecurrence


class MinGRU(LinearRecurrence):
    """Feng et al. 2024, "Were RNNs all we needed?": a GRU without reset gate, whose gate and candidate see x only:

        z = σ(W_z x + b_z)        n = g(W_n x + b_n)        h' = (1 - z) ⊙ h + z ⊙ n

        g(v) = v + 0.5 where v ≥ 0, else σ(v)

    The paper's g makes n, and so h, positive, since it trains by sums of logarithms; the scan here needs none, and g is
    kept because it is the published layer. The weights stack z, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("update", "candidate"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, None]:
        v_z, v_n = self.preactivations(x)
        z, n = self.gates.update(torch.sigmoid(v_z)), self.gates.candidate(positive(v_n))
        return 1 - z, z * n, None


class MinLSTM(LinearRecurrence):
    """Feng et al. 2024: an LSTM without output gate, whose gates see x only and share what they let through:

        f = σ(W_f x + b_f)        i = σ(W_i x + b_i)        n = g(W_n x + b_n)
        f' = f / (f + i)          i' = i / (f + i)          h' = f' ⊙ h + i' ⊙ n

    with the g of `MinGRU`. Computed as f' = σ(log f - log i), i' = σ(log i - log f), it needs no quotient of numbers
    that may both vanish. The taps see f' and i'. The weights stack f, i, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("forget", "input", "candidate"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, None]:
        v_f, v_i, v_n = self.preactivations(x)
        k = F.softplus(-v_i) - F.softplus(-v_f)  # log f - log i
        f, i = self.gates.forget(torch.sigmoid(k)), self.gates.input(torch.sigmoid(-k))
        return f, i * self.gates.candidate(positive(v_n)), None


def positive(v: Tensor) -> Tensor:
    """The paper's g: v + 0.5 where v ≥ 0, else σ(v); continuous, increasing and above zero."""
    return F.relu(v) + torch.sigmoid(v.clamp(max=0))
