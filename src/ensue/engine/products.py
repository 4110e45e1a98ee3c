"""Matrix products by the kernels of `kernels.h`, which pack a matrix once, and a cache of packed matrices.

Products in bfloat16 have two kernels: "avx512", in vector registers, and "amx", in the tile registers that Intel's
processors have since 2023. A third kernel, "int8", rounds both factors to int8 numbers, for inference. A kernel is used
if processor and system support it and its products agree with torch's.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal, TypeVar, get_args
from weakref import WeakKeyDictionary, ref

import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.engine.c_library import library
from ensue.engine.storage import address, address_of_rows, is_transformed
from ensue.processor import features
from ensue.types import change_temporarily
from ensue.version import package_text

Bf16Kernel = Literal["avx512", "amx"]
ProductKernel = Literal[Bf16Kernel, "int8"]
DEFINES: dict[ProductKernel | None, tuple[str, ...]] = {
    None: (),
    "avx512": ("-DPRODUCTS_IN_BF16=1",),
    "amx": ("-DPRODUCTS_IN_BF16=1", "-DPRODUCTS_IN_AMX=1"),
    "int8": ("-DPRODUCTS_IN_INT8=1",),
}
BF16_FEATURES = {f"{kernel}_bf16" for kernel in get_args(Bf16Kernel)}
INT8_FEATURES = {"avx512_vnni", "avx_vnni"}
MIN_ELEMENTS_PER_THREAD = 1 << 15
"""The number of elements of a single pass for which an additional thread saves time."""

T = TypeVar("T")
_caching: "ContextVar[CachedWeights | None]" = ContextVar("caching", default=None)
_packed: WeakKeyDictionary[Any, tuple[ref[Tensor], int, Tensor]] = WeakKeyDictionary()
"""The weights of `int8_linear`, their versions, and the packed weights."""
_chosen: list[Bf16Kernel] = []
"""The kernel that `use_bf16_kernel` has chosen; else empty."""


class CachedWeights:
    """A cache of packed weights for frozen models. Models that run inside `used` must not change.

    Torch cannot detect every change: `p.data.copy_()` changes neither the address nor the version of a tensor. Without
    the cache, packing the matrices of a layer takes a third of the time of a single sentence.
    """

    def __init__(self) -> None:
        self.values: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def used(self) -> AbstractContextManager[None]:
        """Let layers read cached weights in a `with` block, while gradients are disabled."""
        return change_temporarily(_caching.set, self, _caching.get())


def weights_are_frozen() -> bool:
    """Return whether weights do not change, so that packed weights are cached: inside `CachedWeights.used`."""
    return _caching.get() is not None


def caching() -> AbstractContextManager[None]:
    """Return a context manager that caches packed weights, unless they are cached already."""
    return nullcontext() if weights_are_frozen() else CachedWeights().used()


def cached_for(owner: Any, make: Callable[[], T]) -> T | None:
    """Return the cached value of `owner`, made by `make`; None outside `CachedWeights.used` or with gradients."""
    cache = _caching.get()
    if cache is None or torch.is_grad_enabled():
        return None
    if owner not in cache.values:
        cache.values[owner] = make()
    return cache.values[owner]


class ProductKernels:
    """The compiled functions of `products.c` for one dtype, from `products`."""

    def __init__(self, functions: ctypes.CDLL, dtype: torch.dtype) -> None:
        self._functions, self.dtype = functions, dtype
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        for name in ("size_of_packed", "size_of_block", "product_kernel"):
            getattr(functions, name).restype = number
        matrix = pointer, number, number
        functions.size_of_packed.argtypes, functions.size_of_block.argtypes = [number] * 2, [number]
        functions.pack_matrix.argtypes = [number, number, *matrix, pointer]
        functions.multiply.argtypes = [number, number, number, pointer, number, pointer, pointer, number]
        functions.multiply_once.argtypes = [number, number, number, *matrix, *matrix, *matrix, pointer]
        functions.run_plan.argtypes = [pointer, number, pointer, *[number] * 4]
        self.run_plan, self.size_of_packed = functions.run_plan, functions.size_of_packed
        self.kernel: ProductKernel | None = (None, *get_args(ProductKernel))[functions.product_kernel()]
        """The kernel of products in bfloat16 or int8, or None for products in `dtype`."""
        self.multiply_packed = ctypes.cast(functions.multiply, pointer).value
        """The address of the function that a compiled step calls."""

    def packed(self, matrix: Tensor, sizes: tuple[int, int], name: str = "a matrix") -> Tensor:
        """Return a (k, n) matrix of any strides packed for the kernels."""
        start = address(name, matrix, self.dtype, sizes, strided=True)
        packed = matrix.new_empty(self.size_of_packed(*sizes))
        self._functions.pack_matrix(*sizes, start, *matrix.stride(), packed.data_ptr())
        return packed

    def multiply_rows(self, a: Tensor, packed: Tensor, out: Tensor) -> None:
        """Write `a @ b` to `out`, where `packed` is the packed b. All three tensors are contiguous."""
        (m, k), n = a.shape, out.shape[1]
        left, result = address("a factor", a, self.dtype, (m, k)), address("a product", out, self.dtype, (m, n))
        right = address("a packed matrix", packed, self.dtype, (self.size_of_packed(k, n),))

        def multiply_rows(first: int, last: int, worker: int) -> None:
            start, end = left + first * k * a.element_size(), result + first * n * a.element_size()
            self._functions.multiply(last - first, n, k, start, k, right, end, n)

        parallel_rows(m, multiply_rows)

    def multiply(self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
        """Write `a @ b` to `out`, or add it to `out`. Rows of `out` are contiguous; `a` and `b` have any strides."""
        m, k, n = len(a), a.shape[-1], b.shape[-1]
        left = address("the left factor of a product", a, self.dtype, (m, k), strided=True)
        right = address("the right factor of a product", b, self.dtype, (k, n), strided=True)
        result = address_of_rows("a product", out, self.dtype, m, n)
        row_bytes_of_a, row_bytes_of_out = (tensor.stride(0) * tensor.element_size() for tensor in (a, out))

        def multiply_rows(first: int, last: int, worker: int) -> None:
            rows, start, end = last - first, left + first * row_bytes_of_a, result + first * row_bytes_of_out
            workspace = b.new_empty(self._functions.size_of_block(n))
            self._functions.multiply_once(
                rows, n, k, start, *a.stride(), right, *b.stride(), end, out.stride(0), accumulate,
                workspace.data_ptr(),
            )  # fmt: skip

        parallel_rows(m, multiply_rows)


@cache
def products(dtype: torch.dtype, kernel: ProductKernel | None = None) -> ProductKernels | None:
    """Return the product kernels; None if they are not available. A bfloat16 `kernel` adds products in float32."""
    functions = library_with_products(package_text("engine/products.c"), dtype, kernel)
    kernels = None if functions is None else ProductKernels(functions, dtype)
    return kernels if kernels is None or kernels.kernel == kernel else None


def library_with_products(text: str, dtype: torch.dtype, kernel: ProductKernel | None) -> ctypes.CDLL | None:
    """Return the library compiled from `text`, which multiplies by `kernel`; None after a failure."""
    header = {"amx": ["amx.h"], "int8": ["int8.h"]}.get(kernel or "", [])
    return library("\n".join([*(package_text(f"engine/{name}") for name in header), text]), dtype, DEFINES[kernel])


@cache
def bf16_kernels() -> tuple[Bf16Kernel, ...]:
    """Return the kernels that work on this machine, the default last."""
    return tuple(kernel for kernel in get_args(Bf16Kernel) if _is_correct(kernel))


def bf16_kernel() -> Bf16Kernel | None:
    """Return the kernel that multiplies in bfloat16, or None."""
    return _chosen[0] if _chosen else next(reversed(bf16_kernels()), None)


@cache
def has_bfloat16() -> bool:
    """Return whether torch multiplies bfloat16 by instructions of this processor; True if the processor is unknown.

    Without such instructions, oneDNN's products in bfloat16 take 4 to 30 times as long as in float32 (docs/log).
    """
    if not torch.backends.mkldnn.is_available() or not features():  # type: ignore[no-untyped-call]
        return True
    on_x86 = not features().isdisjoint(BF16_FEATURES) and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return (on_x86 or "bf16" in features()) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def use_bf16_kernel(kernel: Bf16Kernel) -> None:
    """Choose the kernel for products in bfloat16. Raises ValueError if it does not work on this machine."""
    if kernel not in bf16_kernels():
        raise ValueError(
            f"{kernel}: this machine cannot use this bfloat16 kernel; expected {' or '.join(bf16_kernels()) or 'none'}"
        )
    _chosen[:] = [kernel]


@cache
def has_int8() -> bool:
    """Return whether this processor has instructions for products of int8 numbers that agree with torch's products."""
    return _is_correct("int8")


def _is_correct(kernel: ProductKernel) -> bool:
    """Return whether a kernel compiles and agrees with torch, for odd sizes and a transposed factor."""
    if features().isdisjoint(INT8_FEATURES if kernel == "int8" else {f"{kernel}_bf16"}):
        return False
    kernels = products(torch.float32, kernel)
    if kernels is None:
        return False
    a, b = (torch.linspace(-1, 1, size).float().sin().view(-1, 70) for size in (37 * 70, 45 * 70))
    for left, right in ((a, b.t()), (a.t(), a[:, :9])):
        product = left.new_empty(left.shape[0], right.shape[1])
        kernels.multiply(left, right, product)
        sizes = left.double().abs(), right.double().abs()
        bound = 3 * 2.0**-9 * (sizes[0] @ sizes[1])  # the maximum relative error of rounding to bfloat16 is 2^-9
        if kernel == "int8":  # both factors are rounded to multiples of their maximum / 127
            bound = 70 / 126 * sizes[0].amax(1, True) * sizes[1].amax(0, True)
        if not ((product - left.double() @ right.double()).abs() <= bound).all():
            return False
    return True


def int8_linear(owner: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear(x, weight, bias)`, by the kernel "int8" if gradients are disabled and the kernel supports x.

    The packed weight is cached for `owner` until the weight changes. Changes through `weight.data` are not detected.
    """
    kernels = products(torch.float32, "int8")
    is_float = x.is_cpu and x.dtype == weight.dtype == torch.float32
    if kernels is None or torch.is_grad_enabled() or not is_float or x.numel() == 0 or is_transformed():
        return F.linear(x, weight, bias)
    version = 0 if weight.is_inference() else weight._version
    cached, cached_version, packed = _packed.get(owner, (None, 0, weight))
    if cached is None or cached() is not weight or cached_version != version:
        packed = kernels.packed(weight.t(), (weight.shape[1], len(weight)))
        _packed[owner] = ref(weight), version, packed
    rows = x.reshape(-1, weight.shape[1]).resolve_neg().contiguous()
    product = rows.new_empty(len(rows), len(weight))
    kernels.multiply_rows(rows, packed, product)
    return (product if bias is None else product.add_(bias)).view(*x.shape[:-1], len(weight))


def worth_threads(x: Tensor) -> int:
    """Return the number of threads for a single pass over `x`."""
    return min(torch.get_num_threads(), 1 + x.numel() // MIN_ELEMENTS_PER_THREAD)


def parallel_rows(rows: int, work: Callable[[int, int, int], None], *, max_workers: int | None = None) -> None:
    """Call `work(first, last, worker)` for slices of `rows` rows in parallel, one slice for each thread of torch."""
    workers = min(max_workers or torch.get_num_threads(), max(1, rows))
    if workers == 1:
        work(0, rows, 0)
        return
    bounds = [rows * worker // workers for worker in range(workers + 1)]
    list(_pool(workers).map(work, bounds[:-1], bounds[1:], range(workers)))


_pool = cache(partial(ThreadPoolExecutor, thread_name_prefix="ensue-engine"))
