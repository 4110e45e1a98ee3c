"""The clockwork network over whole sequences in C (clockwork.c), where what rests costs nothing.

Written by hand, since it does less than `step` says: which modules rest is known beforehand where all clocks agree. It
is compiled as the engine's cells are.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ensue.nn.engine.c_library import library
from ensue.nn.engine.products import in_parts

PART = 32
"""Units from which on a module is multiplied by itself: fewer do not fill the registers."""


class Turns:
    """Where each module works when all clocks show `start` at the first position, as the functions in C read it."""

    def __init__(self, periods: tuple[int, ...], size: int, start: int, extents: tuple[int, int, int]) -> None:
        batch, positions, d_in = extents
        several = min(len(periods), -(-PART // size))
        numbers, errors = [], 0
        for k in range(0, len(periods), several):
            units, first = min(several, len(periods) - k) * size, -start % periods[k]
            turns = max(0, -(-(positions - first) // periods[k]))
            numbers += [k * size, units, periods[k], first, turns, errors]
            errors += batch * turns * units
        self.errors = errors
        """How many errors at pre-activations there are."""
        shape = [batch, positions, start, d_in, len(periods) * size, len(numbers) // 6, size, len(periods), *periods]
        self._numbers = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(numbers))(*numbers)

    def run(self, name: str, rows: int, *tensors: Tensor, sums: Tensor | None = None) -> None:
        """A function, on so many rows in parts. Tensors are contiguous; `sums` has a row for each thread."""
        function = getattr(functions(tensors[0].dtype), name)
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]

        def work(first: int, last: int, worker: int) -> None:
            own = [] if sums is None else [ctypes.c_void_p(sums[worker].data_ptr())]
            function(*self._numbers, ctypes.c_int64(first), ctypes.c_int64(last), *addresses, *own)

        in_parts(rows, work)


turns_of = lru_cache(Turns)


@cache
def functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    """None where there is no compiler, or the type is neither float32 nor float64."""
    if dtype not in (torch.float32, torch.float64):
        return None
    return library((Path(__file__).parent / "clockwork.c").read_text(encoding="utf-8"), dtype)


class ClockworkTurns(torch.autograd.Function):
    """The outputs and the states after the last position."""

    @staticmethod
    def forward(ctx: Any, turns: Turns, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        x, h, W, U, b = (tensor.contiguous() for tensor in (x, h, W, U, b))
        y = x.new_empty(*x.shape[:2], h.shape[1])
        turns.run("forward", len(x), x, h, W, U, b, y)
        ctx.turns = turns
        ctx.save_for_backward(x, h, W, U, y)
        ctx.set_materialize_grads(False)
        return y, y[:, -1].clone()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, error: Tensor | None, at_end: Tensor | None) -> tuple[Tensor | None, ...]:
        x, h, W, U, y = ctx.saved_tensors
        error = torch.zeros_like(y) if error is None else error.contiguous()
        at_h = torch.zeros_like(h) if at_end is None else at_end.clone(memory_format=torch.contiguous_format)
        errors, at_b = y.new_empty(ctx.turns.errors), y.new_zeros(torch.get_num_threads(), y.shape[2])
        at_x, at_W, at_U = map(torch.empty_like, (x, W, U))
        ctx.turns.run("backward", len(x), y, error, W, U, errors, at_x, at_h, sums=at_b)
        ctx.turns.run("at_matrices", x.shape[2] + y.shape[2], x, y, h, errors, at_W, at_U)
        return None, at_x, at_h, at_W, at_U, at_b.sum(0)
