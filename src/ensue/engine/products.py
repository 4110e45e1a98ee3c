"""Matrix products by the kernels of `kernels.h`, which pack a matrix once for all positions, and a cache of them.

Products in bfloat16 have two kernels: "avx512", in vector registers, and "amx", in the tile registers that Intel's
processors have since 2023. The second is offered where the processor and the system have it and its products are right.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal, TypeVar, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ensue.engine.c_library import library
from ensue.engine.storage import address_of_matrix, address_of_rows
from ensue.processor import features
from ensue.version import package_text

Bf16Kernel = Literal["avx512", "amx"]
DEFINES: dict[Bf16Kernel | None, tuple[str, ...]] = {
    None: (),
    "avx512": ("-DPRODUCTS_IN_BF16=1",),
    "amx": ("-DPRODUCTS_IN_BF16=1", "-DPRODUCTS_IN_AMX=1"),
}
BF16_FEATURES = {f"{kernel}_bf16" for kernel in get_args(Bf16Kernel)}
A_THREAD = 1 << 15
"""The numbers for which one more thread is worth while."""
HALF_UNIT = 2.0**-9
"""The relative error of a number that is rounded to bfloat16."""

T = TypeVar("T")
_caching: ContextVar[CachedWeights | None] = ContextVar("caching", default=None)
_chosen: list[Bf16Kernel] = []
"""At most one: see `use_bf16_kernel`."""


class PackedWeights:
    """The packed weights of one layer, which holds `weights`, so that an address is of one matrix."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self._packed: dict[tuple[Any, ...], Tensor] = {}

    def packed(self, matrix: Tensor, pack: Callable[[], Tensor]) -> Tensor:
        """The result of `pack` for one of the weights, or for its transpose."""
        key = (matrix.data_ptr(), matrix.shape, matrix.stride())
        if key not in self._packed:
            self._packed[key] = pack()
        return self._packed[key]


class CachedWeights:
    """A cache of packed weights for frozen models: the weights of models that run inside of `used` may not change.

    Torch has no sure sign of a change: `p.data.copy_()` leaves address and version as they were. To pack the matrices
    of a layer takes a third of the time of a single sentence.
    """

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside of this block, and without gradients, layers take cached weights."""
        token = _caching.set(self)
        try:
            yield
        finally:
            _caching.reset(token)

    def of(self, owner: Any, make: Callable[[], T]) -> T:
        """The cached value of `owner`, at first that of `make`."""
        if owner not in self._values:
            self._values[owner] = make()
        value: T = self._values[owner]
        return value


def are_cached() -> bool:
    """Whether weights are declared constant."""
    return _caching.get() is not None


def caching() -> AbstractContextManager[None]:
    """A block in which weights are cached, for a call in which nothing else runs; in such a block already, a no-op."""
    return nullcontext() if are_cached() else CachedWeights().used()


def cached_for(owner: Any, make: Callable[[], T]) -> T | None:
    """The cached value of `owner`. None outside of `used`, and where gradients are wanted."""
    cache = _caching.get()
    return None if cache is None or torch.is_grad_enabled() else cache.of(owner, make)


class ProductKernels:
    """The functions of `products.c`, for one type of number; see `products`."""

    def __init__(self, functions: ctypes.CDLL, dtype: torch.dtype) -> None:
        self._functions, self.dtype = functions, dtype
        for name in ("size_of_packed", "size_of_block", "bf16_kernel"):
            getattr(functions, name).restype = ctypes.c_int64
        self.kernel: Bf16Kernel | None = (None, *get_args(Bf16Kernel))[functions.bf16_kernel()]
        """The products in bfloat16; None: products are in the type of the numbers."""
        self.multiply_packed = ctypes.cast(functions.multiply, ctypes.c_void_p).value
        """The address of the function that a compiled step calls."""

    def packed(
        self, matrix: Tensor, sizes: tuple[int, int], name: str = "a matrix", kept: PackedWeights | None = None
    ) -> Tensor:
        """A (k, n) matrix, of any strides, as the kernels read it; `kept`: it is one of the weights that are held."""
        start = _pointer(address_of_matrix(name, matrix, self.dtype, sizes))
        pack = partial(self._packed, matrix, sizes, start)
        return pack() if kept is None else kept.packed(matrix, pack)

    def _packed(self, matrix: Tensor, sizes: tuple[int, int], start: ctypes.c_void_p) -> Tensor:
        found = matrix.new_empty(self._functions.size_of_packed(*_numbers(*sizes)))
        self._functions.pack_matrix(*_numbers(*sizes), start, *_numbers(*matrix.stride()), _pointer(found.data_ptr()))
        return found

    def multiply(
        self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False, kept: PackedWeights | None = None
    ) -> None:
        """`out` is `a @ b`, or that is added to it; `a` and `b` may be transposed, the rows of `out` have no gaps.

        With `kept`, `b` is one of the weights that are held. The result has the same bits.
        """
        m, k, n = len(a), a.shape[-1], b.shape[-1]
        left = address_of_matrix("the left factor of a product", a, self.dtype, (m, k))
        right = _pointer(address_of_matrix("the right factor of a product", b, self.dtype, (k, n)))
        result = address_of_rows("a product", out, self.dtype, m, n)
        row_of_a, row_of_out = (part.stride(0) * part.element_size() for part in (a, out))
        packed = None if kept is None or accumulate or a.stride(1) != 1 else self.packed(b, (k, n), kept=kept)

        def multiply_rows(first: int, last: int, worker: int) -> None:
            if packed is not None:
                self._functions.multiply(
                    *_numbers(last - first, n, k), _pointer(left + first * row_of_a), *_numbers(a.stride(0)),
                    _pointer(packed.data_ptr()), _pointer(result + first * row_of_out), *_numbers(out.stride(0)),
                )  # fmt: skip
                return
            workspace = b.new_empty(self._functions.size_of_block(*_numbers(n)))
            self._functions.multiply_once(
                *_numbers(last - first, n, k), _pointer(left + first * row_of_a), *_numbers(*a.stride()),
                right, *_numbers(*b.stride()), _pointer(result + first * row_of_out),
                *_numbers(out.stride(0), accumulate), _pointer(workspace.data_ptr()),
            )  # fmt: skip

        in_parts(m, multiply_rows)


@cache
def products(dtype: torch.dtype, bf16_kernel: Bf16Kernel | None = None) -> ProductKernels | None:
    """None where they cannot be compiled, or the processor has no such kernel.

    `bf16_kernel` is for float32: factors in bfloat16, sums in float32.
    """
    names = ["amx.h", "products.c"] if bf16_kernel == "amx" else ["products.c"]
    text = "\n".join(package_text(f"engine/{name}") for name in names)
    functions = library(text, dtype, DEFINES[bf16_kernel])
    found = None if functions is None else ProductKernels(functions, dtype)
    return found if found is None or found.kernel == bf16_kernel else None


@cache
def bf16_kernels() -> tuple[Bf16Kernel, ...]:
    """Kernels that work here, the default one last."""
    return tuple(kernel for kernel in get_args(Bf16Kernel) if _works(kernel))


def bf16_kernel() -> Bf16Kernel | None:
    """The one that multiplies in bfloat16 from now on; None where there is none."""
    return _chosen[0] if _chosen else next(reversed(bf16_kernels()), None)


@cache
def has_bfloat16() -> bool:
    """Whether torch multiplies in bfloat16 by instructions of this processor.

    Without them oneDNN refuses its recurrent kernels, and products take 4 to 30 times as long as in float32 (docs/log).
    True where oneDNN, or what the processor has, is not known.
    """
    if not torch.backends.mkldnn.is_available() or not features():  # type: ignore[no-untyped-call]
        return True
    of_x86 = not features().isdisjoint(BF16_FEATURES) and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return (of_x86 or "bf16" in features()) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def use_bf16_kernel(kernel: Bf16Kernel) -> None:
    """Multiply with this one from now on, in all threads.

    Raises:
        ValueError: it does not work here.
    """
    if kernel not in bf16_kernels():
        raise ValueError(f"products in bfloat16 by {kernel}: here there is {', '.join(bf16_kernels()) or 'no kernel'}")
    _chosen[:] = [kernel]


def _works(kernel: Bf16Kernel) -> bool:
    """Whether there are such products, and they are those of torch: of odd sizes, and with a transposed factor."""
    if f"{kernel}_bf16" not in features():
        return False
    found = products(torch.float32, kernel)
    if found is None:
        return False
    a, b = (torch.linspace(-1, 1, size).sin().view(-1, 70) for size in (37 * 70, 45 * 70))
    for left, right in ((a, b.t()), (a.t(), a[:, :9])):
        product = left.new_empty(left.shape[0], right.shape[1])
        found.multiply(left, right, product)
        most = left.double().abs() @ right.double().abs()
        if not ((product - left.double() @ right.double()).abs() <= 3 * HALF_UNIT * most).all():
            return False
    return True


def worth_threads(x: Tensor) -> int:
    """How many threads a single pass over `x` is worth."""
    return min(torch.get_num_threads(), 1 + x.numel() // A_THREAD)


def in_parts(rows: int, work: Callable[[int, int, int], None], *, most: int | None = None) -> None:
    """`work(first, last, worker)` on parts of the rows, as many at once as torch has threads, or as `most` says."""
    workers = min(most or torch.get_num_threads(), max(1, rows))
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


def _pointer(start: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(start)
