"""A program on a GPU: its passes printed in Triton (`triton_source.py`) and launched position by position.

A position takes one launch for each segment and one for each product. Triton comes with torch where torch is made for
GPUs and is imported only there. A layer's kernels are tried before it runs by them (`agreement.py`). They have not been
timed on a GPU, and there is no CUDA graph, which would take the host's time away from between the launches.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from ensue.engine.held_weights import Kept
from ensue.engine.packing import Packing
from ensue.engine.plain_passes import PlainPasses
from ensue.engine.program import Array, Program
from ensue.engine.schedule import Schedule, View, schedule
from ensue.engine.storage import Arrays, Finals, Storage
from ensue.engine.triton_source import IMPORTS, Kernel, kernels, moves

FEATURES_OF_A_WARP = 128
MOST_WARPS = 16


@dataclass(frozen=True)
class _PrintedPass:
    """A pass: what it does, and the kernel of each of its segments."""

    plan: Schedule
    kernels: list[Kernel | None]


class TritonPasses:
    """The passes of a program as kernels; see `triton_passes`. Any call may raise what Triton's compiler raises."""

    def __init__(self, passes: dict[str, _PrintedPass]) -> None:
        self._passes = passes

    @cached_property
    def _functions(self) -> dict[str, Any]:
        """The kernels by name. Triton is imported here, at the first call."""
        texts = [kernel.text for work in self._passes.values() for kernel in work.kernels if kernel is not None]
        return _defined("\n\n".join([IMPORTS, *texts]))

    multiply = staticmethod(PlainPasses.multiply)

    def run(
        self, name: str, arrays: Arrays, packing: Packing, matrices: Sequence[Tensor], *, finals: Finals,
        kept: Kept | None = None,
    ) -> None:  # fmt: skip
        """As `PlainPasses.run`."""
        work = self._passes[name]
        some = next(iter(arrays.values())).tensor
        own = {
            array: Storage(some.new_zeros(packing.batch, array.width)) for array in work.plan.arrays if _is_own(array)
        }
        counts = [*packing.counts.tolist(), 0]
        positions = range(len(packing.counts))
        with torch.cuda.device(some.device) if some.is_cuda else nullcontext():
            for t in reversed(positions) if name == "backward" else positions:
                here = _ArraysAt({**arrays, **own}, packing, t)
                self._run_position(work, here, counts[t], matrices)
                for array, final in finals:
                    if counts[t + 1] < counts[t]:
                        final[counts[t + 1] : counts[t]] = here.rows_of(array, counts[t + 1], counts[t])
        for array, storage in own.items():
            if array.extent == "sum":
                arrays[array].tensor[0] += storage.tensor.sum(0)

    def _run_position(self, work: _PrintedPass, here: _ArraysAt, count: int, matrices: Sequence[Tensor]) -> None:
        for segment, kernel in zip(work.plan.segments, work.kernels, strict=True):
            for product in segment.products:
                matrix = matrices[product.matrix].t() if product.transposed else matrices[product.matrix]
                torch.mm(here.view(product.factor, count), matrix, out=here.view(product.result, count))
            if kernel is not None:
                stands = [here.stands(array) for array in kernel.arrays]
                tensors = [tensor for tensor, _ in stands]
                firsts = [first for array, (_, first) in zip(kernel.arrays, stands, strict=True) if moves(array)]
                distances = [tensor.stride(0) for tensor in tensors]
                warps = min(MOST_WARPS, max(1, kernel.width // FEATURES_OF_A_WARP))
                launch = self._functions[kernel.name][(count,)]
                launch(*tensors, *firsts, *distances, num_warps=warps, enable_fp_fusion=True)


@dataclass(frozen=True)
class _ArraysAt:
    """Where the arrays stand at position t."""

    arrays: Arrays
    packing: Packing
    t: int

    def stands(self, array: Array) -> tuple[Tensor, int]:
        """The tensor that holds an array, and which of its rows is the first one of the position."""
        storage, t = self.arrays[array], self.t
        if not moves(array):
            return storage.tensor, 0
        if array.extent == "previous":
            if t == 0:
                assert storage.start is not None
                return storage.start, 0
            t -= 1
        return storage.tensor, t % 2 * self.packing.batch if storage.is_ring else int(self.packing.begins[t])

    def rows_of(self, array: Array, begin: int, end: int) -> Tensor:
        tensor, first = self.stands(array)
        return tensor[first + begin : first + end]

    def view(self, view: View, count: int) -> Tensor:
        rows = self.rows_of(view.array, 0, count)[:, view.start : view.start + view.width]
        return rows.expand(count, -1) if view.array.extent == "vector" else rows


def triton_passes(program: Program, dtype: torch.dtype) -> TritonPasses | None:
    """None where there is no Triton, or the type is neither float32 nor float64."""
    if dtype not in (torch.float32, torch.float64) or importlib.util.find_spec("triton") is None:
        return None
    printed = {}
    for name, work in program.passes.items():
        plan = schedule(work)
        printed[name] = _PrintedPass(plan, kernels(name, plan, dtype))
    return TritonPasses(printed)


def _is_own(array: Array) -> bool:
    """Whether a pass has room of its own for an array. Sums go row by row at first, so that their order is known."""
    return array.name == "work" or array.extent == "sum"


@cache
def _defined(text: str) -> dict[str, Any]:
    """What `text` defines. Triton asks for the lines of a function again, and finds them as if they were of a file."""
    name = f"<ensue {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, name, "exec"), found)
    return found
