"""The clockwork recurrent network: modules with different periods, each a simple recurrent network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine import folds, may_compile
from ensue.nn.layer import Recurrent, blank, with_weights
from ensue.nn.recurrent.clockwork_turns import ClockworkTurns, functions, turns_of
from ensue.nn.recurrent.elman import ElmanState
from ensue.nn.taps import Tap, is_watched
from ensue.types import Memory, State


class ClockworkState(NamedTuple):
    """The hidden state h, which is the output, and the clock of each row."""

    h: Float[Tensor, "B d"]
    clock: Int[Tensor, " B"]
    """The number of positions that the row has read."""


class Clockwork(Recurrent):
    """The clockwork network (Koutník et al. 2014). The units are modules of equal size, the fast ones first; module k
    has the period P_k:

        ĥ = tanh(W x + U h + b)
        h'_k = ĥ_k where t mod P_k = 0, h_k elsewhere          t = 0, 1, ... is the row's own clock

    A module reads itself and the slower modules: block (k, j) of U is used only if P_j ≥ P_k. `weight_hidden` (d, d)
    also has the blocks below the diagonal. They start at 0 and stay 0, since they are not read and get no gradient.

    Raises `ValueError` unless `periods` are positive and ascending, each divides the next, and their number divides
    `d_out`.
    """

    def __init__(self, d_in: int, d_out: int, *, periods: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> None:
        super().__init__()
        self.d_in, self.d_out, self.periods = d_in, d_out, checked_periods(periods)
        if d_out % len(periods):
            raise ValueError(f"{d_out} units cannot be divided among {len(periods)} periods")
        self.size = d_out // len(periods)
        self.weight_input = nn.Parameter(torch.empty(d_out, d_in))
        self.weight_hidden = nn.Parameter(torch.empty(d_out, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.period: Tensor
        self.is_heard: Tensor
        self.register_buffer("period", torch.tensor(self.periods).repeat_interleave(self.size), persistent=False)
        self.register_buffer("is_heard", self.period >= self.period.unsqueeze(1), persistent=False)
        # In a tuple, so that torch does not count it as a part: `_all_at_once` calls it with this layer's weights.
        self.lent = (ClockworkUnits(d_out),)
        self.hidden = Tap()
        nn.init.xavier_uniform_(self.weight_input)
        nn.init.xavier_uniform_(self.weight_hidden)
        with torch.no_grad():
            self.weight_hidden.mul_(self.is_heard)
            for begin in range(0, d_out, self.size):
                nn.init.orthogonal_(self.weight_hidden[begin : begin + self.size, begin : begin + self.size])

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ClockworkState:
        h = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return ClockworkState(h, clock=self.period.new_zeros(batch_size))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], ClockworkState]:
        h, clock = self.init_state(len(x_t)) if state is None else state
        U = self.weight_hidden * self.is_heard
        works = clock.unsqueeze(-1) % self.period == 0
        candidate = torch.tanh(F.linear(x_t, self.weight_input, self.bias) + F.linear(h, U))
        h = self.hidden(torch.where(works, candidate, h))
        return h, ClockworkState(h, clock + 1)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], ClockworkState]:
        """In C, which skips resting modules, if the clocks of all rows agree up to multiples of the longest period.
        Otherwise all units are computed at every position."""
        if folds() or is_watched(self):
            return self.fold(x, state, mask=mask)
        h, clock = self.init_state(len(x)) if state is None else state
        x, lengths = blank(x, mask), x.shape[1] if mask is None else mask.sum(1)
        start = 0 if state is None else self._agreed(clock)
        if start is None or not self._runs_turns(x, h):
            y, (h,) = self._all_at_once(x, h, clock, mask)
            return y, ClockworkState(h, clock + lengths)
        turns = turns_of(self.periods, self.size, start, tuple(x.shape))
        weights = self.weight_input, self.weight_hidden, self.bias
        y, end = ClockworkTurns.apply(turns, x, h, *weights)  # type: ignore[no-untyped-call]
        if mask is None:
            return y, ClockworkState(end, clock + lengths)
        last = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, self.d_out)
        h = torch.where(mask[:, :1], y.gather(1, last).squeeze(1), h)
        return blank(y, mask), ClockworkState(h, clock + lengths)

    def _agreed(self, clock: Tensor) -> int | None:
        """The clock that all rows agree on, modulo the longest period; None if they do not."""
        phases = set((clock % self.periods[-1]).tolist())
        return phases.pop() if len(phases) == 1 else None

    def _runs_turns(self, x: Tensor, h: Tensor) -> bool:
        """Whether the C code can read these: C checks no types.

        It runs in float32 under autocast too, since skipping modules saves more than bfloat16 does.
        """
        fits = x.shape[2] == self.d_in and h.shape == (len(x), self.d_out) and x.numel() > 0
        alike = {(tensor.dtype, tensor.device) for tensor in (x, h, self.bias)} == {(x.dtype, torch.device("cpu"))}
        return fits and alike and may_compile() and functions(x.dtype) is not None

    def _all_at_once(self, x: Tensor, h: Tensor, clock: Tensor, mask: Tensor | None) -> tuple[Tensor, ElmanState]:
        """`fold`, with the products of x and the working modules computed for all positions beforehand."""
        clocks = clock.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
        works = clocks.unsqueeze(-1) % self.period == 0
        u = torch.cat((F.linear(x, self.weight_input, self.bias), works.to(x.dtype)), dim=-1)
        U = self.weight_hidden * self.is_heard
        return with_weights(self.lent[0], lambda: {"weight_hidden": U}, u, ElmanState(h), mask)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, periods={self.periods}"


class ClockworkUnits(Recurrent):
    """All modules, from [u; works]: `h' = works ⊙ tanh(u + U h) + (1 - works) ⊙ h`, works being 1 or 0, so exact."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.d_in, self.d_out = 2 * size, size
        self.weight_hidden = nn.Parameter(nn.init.orthogonal_(torch.empty(size, size)))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ElmanState:
        return ElmanState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        u, works = x_t.chunk(2, dim=-1)
        h = works * torch.tanh(u + F.linear(h, self.weight_hidden)) + (1 - works) * h
        return h, ElmanState(h)

    def extra_repr(self) -> str:
        return f"size={self.d_out}"


def checked_periods(periods: Sequence[int]) -> tuple[int, ...]:
    """`periods` as a tuple; raises `ValueError` unless a `Clockwork` can have them."""
    ascending = all(0 < fast < slow and slow % fast == 0 for fast, slow in pairwise(periods))
    if not periods or periods[0] < 1 or not ascending:
        raise ValueError(f"periods are positive, ascending, and each divides the next; not {tuple(periods)}")
    return tuple(periods)
