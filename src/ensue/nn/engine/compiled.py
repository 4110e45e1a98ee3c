"""A program in C: its passes printed, compiled and called, and products by the same kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ensue.nn.engine.c_library import library
from ensue.nn.engine.c_source import Source
from ensue.nn.engine.program import Array, Pass, Program
from ensue.nn.engine.rows import Rows
from ensue.nn.engine.schedule import schedule
from ensue.nn.engine.storage import Arrays

EXTENTS = {"position": 0, "previous": 1, "row": 2, "vector": 3, "sum": 4}
RINGS = {"position": 5, "previous": 6}
PRODUCTS = """
void pack_matrix(int64_t k, int64_t n, const real *from, int64_t row_stride, int64_t column_stride, real *to) {
    pack(k, n, from, row_stride, column_stride, to);
}
void multiply(int64_t m, int64_t n, int64_t k, const real *a, int64_t row_stride, int64_t column_stride,
              const real *packed, real *c, int64_t ldc, int accumulate) {
    gemm(m, n, k, a, row_stride, column_stride, packed, c, ldc, accumulate);
}
int64_t size_of_packed(int64_t k, int64_t n) { return packed_size(k, n); }
"""
ENTRY = """
void {name}(const range *of, const array *a, const final_state *finals, const int64_t *n, const real *const *packed) {{
    run({name}_step, of, a, finals, n, packed);
}}
"""


class Compiled:
    """The passes of a program as functions of C; see `compiled`."""

    def __init__(self, sources: dict[str, Source], functions: ctypes.CDLL) -> None:
        self._sources, self._functions = sources, functions
        functions.size_of_packed.restype = ctypes.c_int64

    def run(
        self, name: str, arrays: Arrays, rows: Rows, matrices: Sequence[Tensor], *, finals: dict[Array, Tensor]
    ) -> None:
        """As `plain.run`; `name` says which pass."""
        source = self._sources[name]
        some = next(iter(arrays.values())).tensor
        listed = {array: place for place, array in enumerate(source.schedule.arrays)}
        spare = {a: some.new_empty(rows.batch, a.width) for a in listed if a.name == "work"}
        table = np.array(
            [
                _described(array, arrays[array].tensor, arrays[array].start, is_ring=arrays[array].is_ring)
                if array in arrays
                else _described(array, spare[array], None, is_ring=False)
                for array in listed
            ],
            dtype=np.int64,
        )
        ends = [(listed[array], final.shape[1], final.data_ptr()) for array, final in finals.items()]
        ended = np.array(ends or [(0, 0, 0)], dtype=np.int64)
        packed = [self._packed(matrices[index], transposed=transposed) for index, transposed in source.matrices]
        addresses = np.array([matrix.data_ptr() for matrix in packed] or [0], dtype=np.int64)
        sizes = np.array(source.sizes or [0], dtype=np.int64)
        function = self._functions[name]

        def run_rows(first: int, last: int, worker: int) -> None:
            numbers = (len(rows.counts), rows.batch, first, last, worker, name == "backward", len(table), len(ends))
            of = np.array([*numbers, rows.counts.ctypes.data, rows.begins.ctypes.data], dtype=np.int64)
            function(*(ctypes.c_void_p(part.ctypes.data) for part in (of, table, ended, sizes, addresses)))

        in_parts(rows.batch, run_rows)

    def _packed(self, matrix: Tensor, *, transposed: bool = False) -> Tensor:
        if transposed:
            matrix = matrix.t()
        k, n = matrix.shape
        packed = matrix.new_empty(self._functions.size_of_packed(_long(k), _long(n)))
        self._functions.pack_matrix(
            _long(k), _long(n), _address(matrix), *map(_long, matrix.stride()), _address(packed)
        )
        return packed

    def multiply(self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
        """`out` is `a @ b`, or that is added to it; `a` and `b` may be transposed, the rows of `out` have no gaps."""
        (m, k), n = a.shape, b.shape[1]
        packed = self._packed(b)

        def multiply_rows(first: int, last: int, worker: int) -> None:
            part, result = a[first:last], out[first:last]
            self._functions.multiply(
                _long(last - first), _long(n), _long(k), _address(part), *map(_long, a.stride()), _address(packed),
                _address(result), _long(out.stride(0)), ctypes.c_int(accumulate),
            )  # fmt: skip

        in_parts(m, multiply_rows)


def compiled(program: Program, dtype: torch.dtype) -> Compiled | None:
    """None where there is no compiler, or the type is neither float32 nor float64."""
    if dtype not in (torch.float32, torch.float64):
        return None
    passes: dict[str, Pass] = {
        "forward": program.forward, "inference": program.inference, "backward": program.backward
    }  # fmt: skip
    sources = {name: Source(f"{name}_step", schedule(work)) for name, work in passes.items()}
    text = PRODUCTS + "".join(source.text + ENTRY.format(name=name) for name, source in sources.items())
    functions = library(text, dtype)
    return None if functions is None else Compiled(sources, functions)


def in_parts(rows: int, work: Callable[[int, int, int], None]) -> None:
    """`work(first, last, worker)` on parts of the rows, as many at once as torch has threads."""
    workers = min(torch.get_num_threads(), max(1, rows))
    if workers == 1:
        work(0, rows, 0)
        return
    borders = [rows * worker // workers for worker in range(workers + 1)]
    list(_pool(workers).map(work, borders[:-1], borders[1:], range(workers)))


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ensue-engine")


def _described(array: Array, tensor: Tensor, start: Tensor | None, *, is_ring: bool) -> tuple[Any, ...]:
    extents = RINGS if is_ring else EXTENTS
    return tensor.data_ptr(), start.data_ptr() if start is not None else 0, tensor.stride(0), extents[array.extent]


def _long(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
