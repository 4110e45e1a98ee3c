"""The quasi-recurrent network: gates from a window of the input, and a memory without weights, run by a scan."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn.initialization import gate_bias, input_weight
from ensue.nn.layer import Recurrent, blank
from ensue.nn.scan import scan
from ensue.nn.taps import Tap, Taps, is_watched
from ensue.types import Memory, State


class QRNNState(NamedTuple):
    c: Float[Tensor, "B d"]
    last: Float[Tensor, "B before d_in"]
    """The last `size` - 1 inputs, the oldest first; zeros stand before the beginning."""


class QRNN(Recurrent):
    """Bradbury et al. 2017, with fo-pooling. Over a window X = [x_{t-size+1}; ...; x_t], a masked convolution:

        z = tanh(W_z X + b_z)        f = σ(W_f X + b_f)        o = σ(W_o X + b_o)
        c' = f ⊙ c + (1 - f) ⊙ z     h = o ⊙ c'

    The weights stack z, f, o. The forget bias starts at 1, as that of our LSTM does.
    """

    def __init__(self, d_in: int, d_out: int, *, size: int = 2) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a window has at least one position, not {size}")
        self.d_in, self.d_out, self.size = d_in, d_out, size
        self.weight_input = input_weight(3, d_out, size * d_in)
        self.bias = gate_bias(3, d_out, forget=1)
        self.gates = Taps("candidate", "forget", "output")
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> QRNNState:
        zeros = self.weight_input.new_zeros
        return QRNNState(c=zeros(batch_size, self.d_out), last=zeros(batch_size, self.size - 1, self.d_in))

    def _gates(self, windows: Float[Tensor, "*positions inputs"]) -> tuple[Tensor, Tensor, Tensor]:
        """z, f and o. Under autocast the product is in its type, and they, which the memory lives on, are not."""
        v = F.linear(windows, self.weight_input, self.bias).to(self.weight_input.dtype)
        v_z, v_f, v_o = v.chunk(3, dim=-1)
        z, f = self.gates.candidate(torch.tanh(v_z)), self.gates.forget(torch.sigmoid(v_f))
        return z, f, self.gates.output(torch.sigmoid(v_o))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], QRNNState]:
        c, last = self.init_state(len(x_t)) if state is None else state
        window = torch.cat((last, x_t.unsqueeze(1)), dim=1)
        z, f, o = self._gates(window.flatten(1))
        c = self.cell(f * c + (1 - f) * z)
        return self.hidden(o * c), QRNNState(c, window[:, 1:])

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], QRNNState]:
        if is_watched(self):
            return self.fold(x, state, mask=mask)
        T = x.shape[1]
        start, last = self.init_state(len(x)) if state is None else state
        seen = torch.cat((last, blank(x, mask)), dim=1)
        z, f, o = self._gates(torch.cat([seen[:, k : k + T] for k in range(self.size)], dim=-1))
        c = scan(f, (1 - f) * z, start, mask=mask)
        # Copies, so that a state does not keep the whole sequence in memory.
        final = c[:, -1].clone() if T else start
        return o * c, QRNNState(final, self._last(seen, T, mask))

    def _last(self, seen: Tensor, length: int, mask: Tensor | None) -> Tensor:
        """The `size` - 1 inputs up to each row's last real position."""
        if mask is None:
            return seen[:, length:].clone()
        offsets = torch.arange(self.size - 1, device=seen.device)
        places = mask.sum(1, keepdim=True) + offsets
        return seen.gather(1, places.unsqueeze(-1).expand(-1, -1, self.d_in))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, size={self.size}"
