"""The clockwork network over whole sequences in C (clockwork.c), which skips the modules that rest.

The C code is written by hand and not derived from `step`: if all clocks agree, the modules that rest are known
beforehand. It is compiled like the engine's cells.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.engine.c_library import library
from ensue.engine.products import in_parts
from ensue.engine.storage import address
from ensue.engine.transforms import gradients_of, needs_history
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
