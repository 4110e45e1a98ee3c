"""Where and how to compute: the device, and on a CPU the type and the kernels of products, and the threads."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field

from ensue.engine import bf16_kernel, bf16_kernels, use_bf16_kernel
from ensue.engine.products import Bf16Kernel
from ensue.errors import EnsueError, nearest
from ensue.models.specification import Table
from ensue.processor import Precision

T = TypeVar("T")
Products = Literal["highest", "medium"]
"""The kernels of float32 products on a CPU, by torch's names: those of the BLAS ("highest") or of oneDNN ("medium")."""
KEPT_PRODUCTS = 64
"""How many compiled products oneDNN keeps, and torch of oneDNN's."""
DEVICES = ("cpu", "cuda", "mps", "xpu")
"""The devices that ensue runs on, by torch's names."""


class Way(Table):
    """A way to compute on a CPU. Another way rounds differently."""

    precision: Precision = "float32"
    products: Products = "highest"
    kernel: Bf16Kernel | None = None
    """The kernel of bfloat16 products in compiled steps; None: there are none, or the engine chooses."""
    threads: int = Field(default=1, ge=1)


PLAIN = Way()
"""The default: float32, the BLAS, one thread."""


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" takes the first GPU, else the CPU. Raises `EnsueError` if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = re.fullmatch(r"([a-z]+)(:\d{1,3})?", name)
    if kind is None or kind[1] not in DEVICES:
        raise EnsueError(
            f'no device "{name}"{nearest(name, ["auto", *DEVICES])}; there are auto, {", ".join(DEVICES)}, cuda:1, ...'
        )
    device = torch.device("cpu" if kind[1] == "cpu" else name)
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):  # torch raises all of them
        raise EnsueError(f'no device "{name}" on this machine; auto takes what is there') from None
    return device


def gpu_precision(device: torch.device) -> Precision:
    """The precision on a GPU: bfloat16 if the hardware has it. Nothing is measured there."""
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context with products in bfloat16, and sums and weights in float32; for float32 it changes nothing."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch or Python means that memory did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


@contextmanager
def computing(way: Way, device: str = "cpu") -> Iterator[None]:
    """Sets threads and kernels (`autocast` the precision) for a `with` block; the process is restored after it."""
    with process_restored(device):
        bound_kept_products()
        with threads_set(way.threads), products_set(way.products), kernel_set(way.kernel), denormals_flushed():
            yield


def bound_kept_products() -> None:
    """Bounds what a process keeps of oneDNN's products, which are compiled anew for each shape.

    Texts have many shapes, and without a bound a training run in bfloat16 grows by gigabytes (docs/log). The libraries
    read these variables when they compile the first product.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(KEPT_PRODUCTS))


@contextmanager
def process_restored(device: str = "cpu") -> Iterator[None]:
    """Restore the environment, sys.path (which onnxruntime.quantization changes when it is imported), the filters of
    warnings, the generators, and the flushing of denormal numbers (which sessions of onnxruntime change) after a block.
    """
    path, flushes = list(sys.path), flushes_denormals()
    with environment_restored(), warnings.catch_warnings(), generators_restored(torch.device(device)):
        try:
            yield
        finally:
            sys.path[:] = path
            torch.set_flush_denormal(flushes)


@contextmanager
def environment_restored() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def generators_restored(device: torch.device) -> AbstractContextManager[None]:
    """Restores torch's global generators of the CPU and of `device`, which a step seeds."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = torch.get_device_module(device).current_device() if device.index is None else device.index
    return torch.random.fork_rng(devices=[index], device_type=device.type)


@contextmanager
def _changed(change: Callable[[T], object], value: T, before: T) -> Iterator[None]:
    """A setting of the process that has this value inside of a block, and the one before behind it."""
    try:
        change(value)
        yield
    finally:
        change(before)


def threads_set(threads: int) -> AbstractContextManager[None]:
    return _changed(torch.set_num_threads, threads, torch.get_num_threads())


def denormals_flushed() -> AbstractContextManager[None]:
    """Flush denormal numbers, such as tails of a large softmax, to zero: processors are slow with them.

    numpy makes its tables of float types at their first use and would find no denormal numbers in the block.
    """
    for name in (np.float16, np.float32, np.float64, np.longdouble):
        np.finfo(name)
    return _changed(torch.set_flush_denormal, True, flushes_denormals())


def flushes_denormals() -> bool:
    """Whether this thread computes with zero in place of denormal numbers; torch has no getter."""
    return not (torch.tensor(1e-40) * 1).item()


def products_set(products: Products) -> AbstractContextManager[None]:
    """Set the kernels of float32 products.

    `torch.set_float32_matmul_precision`, all that torch 2.8 has, cannot be undone, and its getter may fail.
    """
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return _changed(torch.set_float32_matmul_precision, products, torch.get_float32_matmul_precision())
    backends: tuple[Any, ...] = (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)  # type: ignore[attr-defined]
    before = tuple(backend.fp32_precision for backend in backends)

    def change(values: tuple[str, ...]) -> None:
        for backend, value in zip(backends, values, strict=True):
            backend.fp32_precision = value

    return _changed(change, ("ieee", "ieee") if products == "highest" else ("bf16", "tf32"), before)


def kernel_set(kernel: Bf16Kernel | None) -> AbstractContextManager[None]:
    """Sets the kernel of bfloat16 products; not if it does not work here, as for a run from another machine."""
    before = bf16_kernel() if kernel else None
    if kernel is None or before is None or kernel not in bf16_kernels():
        return nullcontext()
    return _changed(use_bf16_kernel, kernel, before)
