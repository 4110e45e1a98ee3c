"""minGRU and minLSTM: gated layers whose gates read the input only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.recurrent.linear_recurrence import LinearRecurrence


class MinGRU(LinearRecurrence):
    """A GRU without reset gate, whose gate and candidate read x only (Feng et al. 2024, "Were RNNs all we needed?"):

        z = σ(W_z x + b_z)        n = g(W_n x + b_n)        h' = (1 - z) ⊙ h + z ⊙ n

        g(v) = v + 0.5 where v ≥ 0, else σ(v)

    g makes n and h positive, which the paper needs for its sums of logarithms. The scan here has no logarithms; g is
    kept as published. The weights stack z, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("update", "candidate"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, None]:
        v_z, v_n = self.preactivations(x)
        z, n = self.gates.update(torch.sigmoid(v_z)), self.gates.candidate(positive(v_n))
        return 1 - z, z * n, None


class MinLSTM(LinearRecurrence):
    """An LSTM without output gate, whose gates read x only and are normalized to a sum of 1 (Feng et al. 2024):

        f = σ(W_f x + b_f)        i = σ(W_i x + b_i)        n = g(W_n x + b_n)
        f' = f / (f + i)          i' = i / (f + i)          h' = f' ⊙ h + i' ⊙ n

    with the g of `MinGRU`. f' is computed as σ(log f - log i) and i' as σ(log i - log f), since f and i may both be
    near 0. The taps see f' and i'. The weights stack f, i, n.
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
    return torch.where(v < 0, torch.sigmoid(v), v + 0.5)
