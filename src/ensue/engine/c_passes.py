"""A program in C: its passes printed, compiled and called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from ensue.engine.c_library import library
from ensue.engine.c_source import VECTOR, Source
from ensue.engine.packing import Packing
from ensue.engine.products import Bf16Kernel, PackedWeights, ProductKernels, in_parts, products
from ensue.engine.program import MOST_KEPT, Array, Program
from ensue.engine.schedule import schedule
from ensue.engine.storage import Arrays, Between, Finals, Storage, address, address_of_rows, of_chunk

EXTENTS = {"position": 0, "previous": 1, "row": 2, "vector": 3, "sum": 4}
RINGS, FEW = {"position": 5, "previous": 6}, {"position": 7, "previous": 8}
ENTRY = """
PUBLIC void {name}(const range *of, const array *a, const final_state *finals, const int64_t *n, const real *const
                   *packed, multiplication *multiply) {{
    run({name}_step, {again}, of, a, finals, n, packed, multiply);
}}
"""


class CompiledPasses:
    """The passes of a program as functions of C; see `compiled`."""

    def __init__(
        self, sources: dict[str, Source], functions: ctypes.CDLL, products: ProductKernels, chunk: tuple[int, int]
    ) -> None:
        self._sources, self._functions, self._products = sources, functions, products
        self.chunk = chunk
        self.multiply, self.bf16_kernel = products.multiply, products.kernel

    def run(
        self,
        name: str,
        arrays: Arrays,
        packing: Packing,
        matrices: Sequence[Tensor],
        *,
        finals: Finals,
        between: Between | None = None,
        kept: PackedWeights | None = None,
    ) -> None:
        """As `PlainPasses.run`."""
        source, dtype = self._sources[name], self._products.dtype
        like = next(iter(arrays.values())).tensor
        numbers, batch = source.numbers, packing.batch
        sums = [len(storage.tensor) for array, storage in arrays.items() if array.extent == "sum"]
        every, block = self.chunk if between is None else (0, 0)
        sums += [len(storage.buffer) // (every * block) for storage in arrays.values() if storage.buffer is not None]
        workers = max(1, min([torch.get_num_threads(), batch, *sums]))  # the number of threads may have changed since
        work = {array: Storage(like.new_empty(batch, array.width)) for array in source.work}
        table = _table(
            [
                _described(array, arrays.get(array) or work[array], packing, dtype, workers, (every, block))
                for array in numbers
            ]
        )
        ends = _table([
            (numbers[array], array.width, address(f"the last {_named(array)}", final, dtype, (batch, array.width)))
            for array, final in finals
        ])  # fmt: skip
        packed = [
            self._products.packed(
                matrices[k].t() if transposed else matrices[k], sizes, f"matrix {k} of the step", kept
            )
            for (k, transposed), sizes in source.matrices.items()
        ]
        addresses = _table([matrix.data_ptr() for matrix in packed])
        sizes = _table(source.sizes)
        function = self._functions[name]

        is_backward, positions = name == "backward", len(packing.counts)

        def run_rows(begin: int, end: int, first: int, last: int, worker: int) -> None:
            part = (begin, end, batch, first, last, worker, is_backward)
            sizes_of = (positions, *part, len(numbers), len(finals), every, block)
            of = _table([*sizes_of, packing.counts.ctypes.data, packing.begins.ctypes.data])
            given = (entry.ctypes.data for entry in (of, table, ends, sizes, addresses))
            function(*map(ctypes.c_void_p, given), ctypes.c_void_p(self._products.multiply_packed))

        if between is None:
            in_parts(batch, partial(run_rows, 0, positions), most=workers)
            return
        for position in range(positions):
            if is_backward:
                between(positions - 1 - position)
            in_parts(batch, partial(run_rows, position, position + 1), most=workers)
            if not is_backward:
                between(position)


def c_passes(program: Program, dtype: torch.dtype, bf16_kernel: Bf16Kernel | None = None) -> CompiledPasses | None:
    """None where there is no compiler, or the type is neither float32 nor float64.

    `bf16_kernel` is for float32: products in bfloat16, summed in float32.
    """
    if dtype not in (torch.float32, torch.float64):
        return None
    sources = _sources(program)
    text = printed(sources, program)
    multiplication, functions = products(dtype, bf16_kernel), library(text, dtype)
    if multiplication is None or functions is None:
        return None
    large = sum(array.width for array in program.large)
    return CompiledPasses(sources, functions, multiplication, of_chunk(large, dtype.itemsize) if large else (0, 0))


@lru_cache(MOST_KEPT)
def _sources(program: Program) -> dict[str, Source]:
    again = schedule(program.again) if program.large else None
    blocks = [min(node.graph.blocks.get(node.width, {1}) - {1}, default=1) for node, _ in program.again.writes]
    fixed = any(size % VECTOR == 0 for size in blocks)
    return {
        name: Source(f"{name}_step", schedule(work), again if name == "backward" else None, writes_sizes=fixed)
        for name, work in program.passes.items()
    }


def printed(sources: dict[str, Source], program: Program) -> str:
    """The text of a program: every pass, and its entry."""
    again = {"backward": "backward_step_again"} if program.large else {}
    entries = {name: ENTRY.format(name=name, again=again.get(name, "NULL")) for name in sources}
    return "".join(source.text + entries[name] for name, source in sources.items())


def _table(rows: Sequence[int] | Sequence[tuple[int, ...]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Numbers and addresses, as C reads them."""
    return np.array(rows if len(rows) else [0], dtype=np.int64)


def _described(
    array: Array, storage: Storage, packing: Packing, dtype: torch.dtype, workers: int, chunk: tuple[int, int]
) -> tuple[int, ...]:
    """An array as loop.h has it, with room for all that is read and written there."""
    name, of_positions = _named(array), 2 * packing.batch if storage.is_ring else packing.size
    buffer, of_large = 0, storage.buffer
    if of_large is not None:
        every, block = chunk
        of_positions = len(packing.counts) // every * packing.batch
        buffer = address_of_rows(f"the buffer of {name}", of_large, dtype, workers * every * block, array.width)
        if of_large.stride(0) != storage.tensor.stride(0):
            raise ValueError(f"the rows of {name} and of its buffer have not the same distance")
    size = {"row": packing.batch, "vector": 1, "sum": workers}.get(array.extent, of_positions)
    where = address_of_rows(name, storage.tensor, dtype, size, array.width), storage.tensor.stride(0)
    before = (0, 0)
    if array.extent == "previous":
        assert storage.start is not None
        start = address_of_rows(f"the first {name}", storage.start, dtype, packing.batch, array.width)
        before = start, storage.start.stride(0)
    extents = RINGS if storage.is_ring else EXTENTS if of_large is None else FEW
    return *where, *before, extents[array.extent], buffer


def _named(array: Array) -> str:
    return f"{array.name} {array.number} of the step"
