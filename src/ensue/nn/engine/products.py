"""Matrix products by the kernels of `kernels.h`, which pack a matrix once for all positions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ensue.nn.engine.c_library import library


class Products:
    """The functions of `products.c`, for one type of number; see `products`."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        for name in ("size_of_packed", "size_of_block", "in_bf16"):
            getattr(functions, name).restype = ctypes.c_int64
        self.in_bf16 = bool(functions.in_bf16())
        self.multiply_packed = ctypes.cast(functions.multiply, ctypes.c_void_p).value
        """The address of the function that a compiled step calls."""

    def packed(self, matrix: Tensor) -> Tensor:
        """A (k, n) matrix, of any strides, as the kernels read it."""
        k, n = matrix.shape
        found = matrix.new_empty(self._functions.size_of_packed(*_numbers(k, n)))
        self._functions.pack_matrix(*_numbers(k, n), _address(matrix), *_numbers(*matrix.stride()), _address(found))
        return found

    def multiply(self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
        """`out` is `a @ b`, or that is added to it; `a` and `b` may be transposed, the rows of `out` have no gaps."""
        (m, k), n = a.shape, b.shape[1]

        def multiply_rows(first: int, last: int, worker: int) -> None:
            part, result = a[first:last], out[first:last]
            workspace = b.new_empty(self._functions.size_of_block(*_numbers(n)))
            self._functions.multiply_once(
                *_numbers(last - first, n, k), _address(part), *_numbers(*a.stride()),
                _address(b), *_numbers(*b.stride()), _address(result), *_numbers(out.stride(0), accumulate),
                _address(workspace),
            )  # fmt: skip

        in_parts(m, multiply_rows)


@cache
def products(dtype: torch.dtype, *, in_bf16: bool = False) -> Products | None:
    """None where they cannot be compiled. `in_bf16` is a wish, which not every processor can fulfill."""
    text = (Path(__file__).parent / "products.c").read_text(encoding="utf-8")
    functions = library(text, dtype, in_bf16=in_bf16)
    return None if functions is None else Products(functions)


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


def _numbers(*numbers: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(number) for number in numbers]


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
