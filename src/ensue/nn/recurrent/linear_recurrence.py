"""Recurrent layers that are linear in their state, feature by feature, which a scan can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn.layer import Recurrent, blank
from ensue.nn.recurrent.initialization import gate_bias, input_weight
from ensue.nn.recurrent.scan import scan
from ensue.nn.taps import Tap, Taps
from ensue.types import Memory, State


class LinearState(NamedTuple):
    """The state h of a `LinearRecurrence`."""

    h: Float[Tensor, "B d"]


class LinearRecurrence(Recurrent, ABC):
    """`h' = a ⊙ h + b` with a and b that depend on x alone, and `h_0 = 0`. A subclass writes `coefficients`."""

    def __init__(self, d_in: int, d_out: int, *, gates: tuple[str, ...], forget: int | None = None) -> None:
        """A product of x gives the pre-activations of all `gates`; the bias of gate number `forget` starts at 1."""
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight_input = input_weight(len(gates), d_out, d_in)
        self.bias = gate_bias(len(gates), d_out, forget=forget)
        self.gates = Taps(*gates)
        self.hidden = Tap()

    @abstractmethod
    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, Tensor | None]:
        """a, b and the output gate (None: there is none), each (..., d_out)."""

    def output(self, h: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output and the new state, from h and the output gate."""
        h = self.hidden(h)
        return h, h

    def preactivations(self, x: Tensor) -> tuple[Tensor, ...]:
        """The pre-activations of each gate, (*positions, d_out).

        Under autocast the product is in its type, and they are not: bfloat16 has no number between 0.996 and 1, and a
        gate that remembers needs them.
        """
        v = F.linear(x, self.weight_input, self.bias)
        return v.to(self.weight_input.dtype).chunk(len(self.bias) // self.d_out, dim=-1)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LinearState:
        return LinearState(self.weight_input.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LinearState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a, b, gate = self.coefficients(x_t)
        y, h = self.output(a * h + b, gate)
        return y, LinearState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LinearState]:
        # A compiled loop computes the gates inside, so it reads and writes less than a scan after them.
        return self.by_scan(x, state, mask=mask)

    def by_scan(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], LinearState]:
        """`forward` by a scan over all positions, as on GPUs and on CPUs where nothing is compiled."""
        (start,) = self.init_state(len(x)) if state is None else state
        a, b, gate = self.coefficients(blank(x, mask))
        y, h = self.output(scan(a, b, start, mask=mask), gate)
        # A copy, so that a state does not keep the whole sequence in memory.
        return blank(y, mask), LinearState(h[:, -1].clone() if h.shape[1] else start)
