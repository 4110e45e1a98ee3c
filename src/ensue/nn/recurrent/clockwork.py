"""The clockwork recurrent network: groups of units (modules) that update with different periods."""

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.engine import folds, may_compile
from ensue.engine.c_library import library
from ensue.engine.products import parallel_rows
from ensue.engine.storage import address, gradients_of, needs_history
from ensue.nn.layer import Recurrent, call_with_weights, mask_padding
from ensue.nn.recurrent.gru import ElmanState
from ensue.nn.taps import Tap, is_watched
from ensue.types import Inputs, Mask, Memory, Outputs, State
from ensue.version import package_text

MIN_PRODUCT_UNITS = 32
"""Modules with fewer units are multiplied together, since a small product would not fill the vector registers."""


class ClockworkSchedule:
    """The schedule of updates for the functions in C, for rows whose clocks are all `start` at the first position.

    `size` is the number of units of a module, and `shape` is the shape (B, T, d_in) of x.
    """

    def __init__(self, periods: tuple[int, ...], size: int, start: int, shape: tuple[int, int, int]) -> None:
        batch, positions, d_in = shape
        self.start, self.period = start, torch.tensor(periods).repeat_interleave(size)
        count = min(len(periods), -(-MIN_PRODUCT_UNITS // size))
        numbers, errors = [], 0
        for k in range(0, len(periods), count):
            units, first = min(count, len(periods) - k) * size, -start % periods[k]
            updates = max(0, -(-(positions - first) // periods[k]))
            numbers += [k * size, units, periods[k], first, updates, errors]
            errors += batch * updates * units
        d = len(periods) * size
        y_shape, h_shape = (batch, positions, d), (batch, d)
        self.sizes: dict[str, tuple[int, ...]] = {
            "x": shape, "h": h_shape, "W": (d, d_in), "U": (d, d), "b": (d,), "y": y_shape, "error": y_shape,
            "errors": (errors,), "at x": shape, "at h": h_shape, "at W": (d, d_in), "at U": (d, d),
        }  # fmt: skip
        """The sizes of all tensors by name. `errors` are the gradients of pre-activations, "at x" the gradient of x."""
        sizes = [batch, positions, start, d_in, d, len(numbers) // 6, size, len(periods), *periods]
        self._numbers = (ctypes.c_int64 * len(sizes))(*sizes), (ctypes.c_int64 * len(numbers))(*numbers)

    def run(self, name: str, count: int, tensors: dict[str, Tensor], *, sums: Tensor | None = None) -> None:
        """Call a function of the library in parallel on slices of `count` rows, or of columns for `matrix_errors`.

        `tensors` are the arguments, by the names of `sizes`. The function adds to the row of `sums` that belongs to its
        thread. Raises ValueError or TypeError for a tensor with a wrong size, type or layout, and MemoryError if the
        packed matrices exceed the memory.
        """
        dtype = next(iter(tensors.values())).dtype
        function = getattr(functions(dtype), name)
        addresses = [ctypes.c_void_p(address(key, tensor, dtype, self.sizes[key])) for key, tensor in tensors.items()]
        rows_of_sums = () if sums is None else sums
        sum_addresses = [ctypes.c_void_p(address("sums", row, dtype, self.sizes["b"])) for row in rows_of_sums]

        def work(first: int, last: int, worker: int) -> None:
            bounds = ctypes.c_int64(first), ctypes.c_int64(last)
            if function(*self._numbers, *bounds, *addresses, *sum_addresses[worker : worker + 1]):
                raise MemoryError(f"no memory for the matrices of a clockwork network of {self.sizes['b'][0]} units")

        parallel_rows(count, work, max_workers=len(sum_addresses) or None)

    def fold(self, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the outputs of `ClockworkFunction` position by position, recorded by autograd."""
        U, outputs = U * (self.period >= self.period.unsqueeze(1)), []
        for t, x_t in enumerate(x.unbind(1), self.start):
            candidate = torch.tanh(F.linear(x_t, W, b) + F.linear(h, U))
            h = torch.where(t % self.period == 0, candidate, h)
            outputs.append(h)
        return torch.stack(outputs, 1), h


cached_schedule = lru_cache(ClockworkSchedule)


@cache
def functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the compiled library; None without a compiler, and for types other than float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        return None
    return library(package_text("nn/recurrent/clockwork.c"), dtype)


class ClockworkFunction(torch.autograd.Function):
    """The autograd function that runs the functions in C."""

    @staticmethod
    def forward(ctx: Any, schedule: ClockworkSchedule, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, T, d), and the state after the last position (B, d), from x, h, W, U and b."""
        x, h, W, U, b = (tensor.resolve_neg().contiguous() for tensor in arguments)
        y = x.new_empty(*x.shape[:2], h.shape[1])
        schedule.run("forward", len(x), {"x": x, "h": h, "W": W, "U": U, "b": b, "y": y})
        ctx.schedule = schedule
        ctx.save_for_backward(*arguments, y)
        ctx.set_materialize_grads(False)
        return y, y[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, error: Tensor | None, at_end: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Return the gradients of x, h, W, U and b."""
        *arguments, y = ctx.saved_tensors
        if needs_history([error, at_end]):
            return None, *gradients_of(ctx.schedule.fold, arguments, [error, at_end])
        x, h, W, U, _ = (tensor.resolve_neg().contiguous() for tensor in arguments)
        error = torch.zeros_like(y) if error is None else error.resolve_neg().contiguous()
        grad_h = torch.zeros_like(h) if at_end is None else at_end.resolve_neg().contiguous().clone()
        errors = y.new_empty(ctx.schedule.sizes["errors"])
        grad_b = y.new_zeros(torch.get_num_threads(), y.shape[2])
        grad_x, grad_W, grad_U = map(torch.empty_like, (x, W, U))
        inputs = {"y": y, "error": error, "W": W, "U": U}
        ctx.schedule.run("backward", len(x), inputs | {"errors": errors, "at x": grad_x, "at h": grad_h}, sums=grad_b)
        inputs = {"x": x, "y": y, "h": h, "errors": errors}
        ctx.schedule.run("matrix_errors", x.shape[2] + y.shape[2], inputs | {"at W": grad_W, "at U": grad_U})
        return None, grad_x, grad_h, grad_W, grad_U, grad_b.sum(0)


class ClockworkState(NamedTuple):
    """The hidden state h, which is the output, and the clock of each row."""

    h: Float[Tensor, "B d"]
    clock: Int[Tensor, " B"]
    """The number of positions that the row has read."""


class Clockwork(Recurrent):
    """The clockwork network (Koutník et al. 2014). Its units are divided into modules of equal size, fast ones first.
    Module k has the period P_k:

        ĥ = tanh(W x + U h + b)
        h'_k = ĥ_k where t mod P_k = 0, h_k elsewhere          t = 0, 1, ... is the clock of the row

    A module reads its own units and slower modules: block (k, j) of U is used only if P_j ≥ P_k. `weight_hidden` (d, d)
    also contains the unused blocks below the diagonal. These blocks are initially 0 and get no gradient.

    Raises ValueError unless the positive `periods` ascend, each divides the next, and their number divides `d_out`.
    """

    repr_arguments = ("d_in", "d_out", "periods")

    def __init__(self, d_in: int, d_out: int, *, periods: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> None:
        super().__init__()
        self.d_in, self.d_out, self.periods = d_in, d_out, check_periods(periods)
        if d_out % len(periods):
            raise ValueError(f"{d_out} units cannot be divided among {len(periods)} periods")
        self.size = d_out // len(periods)
        self.weight_input = nn.Parameter(torch.empty(d_out, d_in))
        self.weight_hidden = nn.Parameter(torch.empty(d_out, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.period: Tensor
        self.is_read: Tensor
        self.register_buffer("period", torch.tensor(self.periods).repeat_interleave(self.size), persistent=False)
        self.register_buffer("is_read", self.period >= self.period.unsqueeze(1), persistent=False)
        # In a tuple, so that torch does not register it: `_compute_all_units` calls it with this layer's weights.
        self._units = (ClockworkUnits(d_out),)
        self.hidden = Tap()
        nn.init.xavier_uniform_(self.weight_input)
        nn.init.xavier_uniform_(self.weight_hidden)
        with torch.no_grad():
            self.weight_hidden.mul_(self.is_read)
            for begin in range(0, d_out, self.size):
                nn.init.orthogonal_(self.weight_hidden[begin : begin + self.size, begin : begin + self.size])

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ClockworkState:
        h = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return ClockworkState(h, clock=self.period.new_zeros(batch_size))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], ClockworkState]:
        h, clock = self.init_state(len(x_t)) if state is None else state
        U = self.weight_hidden * self.is_read
        updates = clock.unsqueeze(-1) % self.period == 0
        candidate = torch.tanh(F.linear(x_t, self.weight_input, self.bias) + F.linear(h, U))
        h = self.hidden(torch.where(updates, candidate, h))
        return h, ClockworkState(h, clock + 1)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, ClockworkState]:
        """Compute only the modules that update, in C, if the clocks of all rows are equal modulo the longest period.

        Otherwise, and for tensors that the C functions do not support, compute all units at every position.
        """
        if folds() or is_watched(self):
            return self.fold(x, state, mask=mask)
        h, clock = self.init_state(len(x)) if state is None else state
        x, lengths = mask_padding(x, mask), x.shape[1] if mask is None else mask.sum(1)
        phases = {0} if state is None else set((clock % self.periods[-1]).tolist())
        if len(phases) != 1 or not self._can_run_in_c(x, h):
            y, (h,) = self._compute_all_units(x, h, clock, mask)
            return y, ClockworkState(h, clock + lengths)
        schedule = cached_schedule(self.periods, self.size, phases.pop(), tuple(x.shape))
        weights = self.weight_input, self.weight_hidden, self.bias
        y, end = ClockworkFunction.apply(schedule, x, h, *weights)  # type: ignore[no-untyped-call]
        if mask is None:
            return y, ClockworkState(end, clock + lengths)
        last = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, self.d_out)
        h = torch.where(mask[:, :1], y.gather(1, last).squeeze(1), h)
        return mask_padding(y, mask), ClockworkState(h, clock + lengths)

    def _can_run_in_c(self, x: Tensor, h: Tensor) -> bool:
        """Return whether the functions in C support these tensors. Autocast is ignored, since C saves more time."""
        fits = x.shape[2] == self.d_in and h.shape == (len(x), self.d_out) and x.numel() > 0
        kinds = {(tensor.dtype, tensor.device) for tensor in (x, h, self.bias)}
        return fits and kinds == {(x.dtype, torch.device("cpu"))} and may_compile() and functions(x.dtype) is not None

    def _compute_all_units(self, x: Tensor, h: Tensor, clock: Tensor, mask: Tensor | None) -> tuple[Tensor, ElmanState]:
        """Compute the result of `fold` with all units, after the products of x and `updates` at all positions."""
        clocks = clock.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
        updates = clocks.unsqueeze(-1) % self.period == 0
        u = torch.cat((F.linear(x, self.weight_input, self.bias), updates.to(x.dtype)), dim=-1)
        U = self.weight_hidden * self.is_read
        return call_with_weights(self._units[0], lambda: {"weight_hidden": U}, u, ElmanState(h), mask)


class ClockworkUnits(Recurrent):
    """The units of all modules, with the input [u; updates]: h' = tanh(u + U h) where `updates` is 1, else h' = h."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.d_in, self.d_out = 2 * size, size
        self.weight_hidden = nn.Parameter(nn.init.orthogonal_(torch.empty(size, size)))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ElmanState:
        return ElmanState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        u, updates = x_t.chunk(2, dim=-1)
        h = torch.where(updates > 0, torch.tanh(u + F.linear(h, self.weight_hidden)), h)
        return h, ElmanState(h)

    def extra_repr(self) -> str:
        return f"size={self.d_out}"


def check_periods(periods: Sequence[int]) -> tuple[int, ...]:
    """Return `periods` as a tuple. Raises ValueError unless they are valid for a `Clockwork`."""
    ascending = all(0 < fast < slow and slow % fast == 0 for fast, slow in pairwise(periods))
    if not periods or periods[0] < 1 or not ascending:
        raise ValueError(f"periods must be positive, ascending, and each divide the next; found {tuple(periods)}")
    return tuple(periods)
