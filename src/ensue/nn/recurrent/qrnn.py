"""The quasi-recurrent network: gates from a window of the input, and a recurrence without weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.linear_recurrence import LinearRecurrence, LinearState
from ensue.nn.taps import Tap, is_watched
from ensue.nn.window import windows_of
from ensue.types import Memory, State


class QRNNState(NamedTuple):
    """The state of a `QRNN`: the cell and the last inputs."""

    c: Float[Tensor, "B d"]
    last: Float[Tensor, "B before d_in"]
    """The last `size` - 1 inputs, the oldest first; zeros stand before the beginning."""


class QRNN(Recurrent):
    """The quasi-recurrent network with fo-pooling (Bradbury et al. 2017). With X = [x_{t-size+1}; ...; x_t]:

        z = tanh(W_z X + b_z)        f = σ(W_f X + b_f)        o = σ(W_o X + b_o)
        c' = f ⊙ c + (1 - f) ⊙ z     h = o ⊙ c'

    The part `pooling` computes this from windows. Raises `ValueError` if `size` is below 1.
    """

    def __init__(self, d_in: int, d_out: int, *, size: int = 2) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a window has at least one position, not {size}")
        self.d_in, self.d_out, self.size = d_in, d_out, size
        self.pooling = FoPooling(size * d_in, d_out)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> QRNNState:
        (c,) = self.pooling.init_state(batch_size)
        return QRNNState(c, last=c.new_zeros(batch_size, self.size - 1, self.d_in))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], QRNNState]:
        c, last = self.init_state(len(x_t)) if state is None else state
        window = torch.cat((last, x_t.unsqueeze(1)), dim=1)
        y_t, (c,) = self.pooling.step(window.flatten(1), LinearState(c))
        return y_t, QRNNState(c, window[:, 1:].clone())

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], QRNNState]:
        if is_watched(self):
            return self.fold(x, state, mask=mask)
        c, last = self.init_state(len(x)) if state is None else state
        windows, last = windows_of(x, last, mask)
        y, (c,) = self.pooling(windows, LinearState(c), mask=mask)
        return y, QRNNState(c, last)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, size={self.size}"


class FoPooling(LinearRecurrence):
    """The gates of a `QRNN` and its cell, from windows (B, T, inputs). The weights stack z, f, o.

    The forget bias starts at 1, as in the LSTM.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("candidate", "forget", "output"), forget=1)
        self.cell = Tap()

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, Tensor]:
        v_z, v_f, v_o = self.preactivations(x)
        z, f = self.gates.candidate(torch.tanh(v_z)), self.gates.forget(torch.sigmoid(v_f))
        return f, (1 - f) * z, self.gates.output(torch.sigmoid(v_o))

    def output(self, h: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        assert gate is not None
        c = self.cell(h)
        return self.hidden(gate * c), c
