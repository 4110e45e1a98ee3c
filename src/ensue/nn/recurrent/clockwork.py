"""The clockwork recurrent network: modules with different periods, each a simple recurrent network."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine import folds, may_compile
from ensue.engine.c_library import library
from ensue.engine.products import in_parts
from ensue.engine.storage import address, gradients_of, needs_history
from ensue.nn.layer import Recurrent, blank, with_weights
from ensue.nn.recurrent.elman import ElmanState
from ensue.nn.taps import Tap, is_watched
from ensue.types import Memory, State
from ensue.version import package_text

PART = 32
"""Modules with fewer units share a product, since they would not fill the registers."""


class Turns:
    """The positions at which each module works if all clocks are `start` at the first one, for the functions in C."""

    def __init__(self, periods: tuple[int, ...], size: int, start: int, extents: tuple[int, int, int]) -> None:
        batch, positions, d_in = extents
        self.start, self.period = start, torch.tensor(periods).repeat_interleave(size)
        several = min(len(periods), -(-PART // size))
        numbers, errors = [], 0
        for k in range(0, len(periods), several):
            units, first = min(several, len(periods) - k) * size, -start % periods[k]
            turns = max(0, -(-(positions - first) // periods[k]))
            numbers += [k * size, units, periods[k], first, turns, errors]
            errors += batch * turns * units
        d = len(periods) * size
        of_x, of_y, of_h = (batch, positions, d_in), (batch, positions, d), (batch, d)
        self.sizes: dict[str, tuple[int, ...]] = {
            "x": of_x, "h": of_h, "W": (d, d_in), "U": (d, d), "b": (d,), "y": of_y, "error": of_y,
            "errors": (errors,), "at x": of_x, "at h": of_h, "at W": (d, d_in), "at U": (d, d),
        }  # fmt: skip
        """The sizes of all tensors by name; `errors` are the errors at pre-activations."""
        shape = [batch, positions, start, d_in, d, len(numbers) // 6, size, len(periods), *periods]
        self._numbers = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(numbers))(*numbers)

    def run(self, name: str, rows: int, given: dict[str, Tensor], *, sums: Tensor | None = None) -> None:
        """Calls a function on `rows` rows, in parts, with tensors by the names of `sizes`; `sums` has a row per thread.

        Raises:
            ValueError, TypeError: a tensor has not the size, the type or the layout that the function expects.
            MemoryError: there is no room for the packed matrices.
        """
        dtype = next(iter(given.values())).dtype
        function = getattr(functions(dtype), name)
        addresses = [ctypes.c_void_p(address(key, tensor, dtype, self.sizes[key])) for key, tensor in given.items()]
        parts = [] if sums is None else list(sums)
        of_sums = [ctypes.c_void_p(address("sums", part, dtype, self.sizes["b"])) for part in parts]

        def work(first: int, last: int, worker: int) -> None:
            own = [] if sums is None else [of_sums[worker]]
            if function(*self._numbers, ctypes.c_int64(first), ctypes.c_int64(last), *addresses, *own):
                raise MemoryError(f"no room for the matrices of a clockwork network of {self.sizes['b'][0]} units")

        in_parts(rows, work, most=None if sums is None else len(parts))

    def folded(self, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the outputs of `ClockworkTurns` position by position, recorded by autograd."""
        U, outputs = U * (self.period >= self.period.unsqueeze(1)), []
        for t, x_t in enumerate(x.unbind(1), self.start):
            candidate = torch.tanh(F.linear(x_t, W, b) + F.linear(h, U))
            h = torch.where(t % self.period == 0, candidate, h)
            outputs.append(h)
        return torch.stack(outputs, 1), h


turns_of = lru_cache(Turns)


@cache
def functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions; None without a compiler, and for types other than float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        return None
    return library(package_text("nn/recurrent/clockwork.c"), dtype)


class ClockworkTurns(torch.autograd.Function):
    """The functions in C with their gradients: gives the outputs and the states after the last position."""

    @staticmethod
    def forward(ctx: Any, turns: Turns, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs (B, T, d) and the state after the last position (B, d)."""
        given = x, h, W, U, b
        x, h, W, U, b = (tensor.resolve_neg().contiguous() for tensor in given)
        y = x.new_empty(*x.shape[:2], h.shape[1])
        turns.run("forward", len(x), {"x": x, "h": h, "W": W, "U": U, "b": b, "y": y})
        ctx.turns = turns
        ctx.save_for_backward(*given, y)
        ctx.set_materialize_grads(False)
        return y, y[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, error: Tensor | None, at_end: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """The gradients of x, h, W, U and b."""
        *given, y = ctx.saved_tensors
        if needs_history([error, at_end]):
            return None, *gradients_of(ctx.turns.folded, given, [error, at_end])
        x, h, W, U, _ = (tensor.resolve_neg().contiguous() for tensor in given)
        error = torch.zeros_like(y) if error is None else error.resolve_neg().contiguous()
        at_h = (
            torch.zeros_like(h) if at_end is None else at_end.resolve_neg().clone(memory_format=torch.contiguous_format)
        )
        errors = y.new_empty(ctx.turns.sizes["errors"])
        at_b = y.new_zeros(torch.get_num_threads(), y.shape[2])
        at_x, at_W, at_U = map(torch.empty_like, (x, W, U))
        read = {"y": y, "error": error, "W": W, "U": U}
        ctx.turns.run("backward", len(x), read | {"errors": errors, "at x": at_x, "at h": at_h}, sums=at_b)
        read = {"x": x, "y": y, "h": h, "errors": errors}
        ctx.turns.run("at_matrices", x.shape[2] + y.shape[2], read | {"at W": at_W, "at U": at_U})
        return None, at_x, at_h, at_W, at_U, at_b.sum(0)


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
