"""The device of a run, and the compute mode on a CPU: precision, kernels of matrix products, and threads."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from ensue.engine import bf16_kernel, bf16_kernels, use_bf16_kernel
from ensue.engine.products import Bf16Kernel
from ensue.errors import EnsueError, nearest
from ensue.models.specification import Table
from ensue.processor import Precision
from ensue.runs.weights import in_float32
from ensue.types import change_temporarily

Products = Literal["highest", "medium"]
"""torch's precision of float32 products. On a CPU, "highest" is the BLAS, "medium" oneDNN, on some CPUs in bfloat16."""
MAX_CACHED_PRODUCTS = 64
"""The maximum number of compiled products in each cache of oneDNN and torch."""
DEVICES = ("cpu", "cuda", "mps", "xpu")
"""The devices that ensue runs on, by torch's names."""


class ComputeMode(Table):
    """Precision, kernels and threads on a CPU. Each mode rounds differently."""

    precision: Precision = "float32"
    products: Products = "highest"
    kernel: Bf16Kernel | None = None
    """The kernel of bfloat16 products in compiled steps. None leaves the choice to the engine."""
    threads: int = Field(default=1, ge=1)


DEFAULT_MODE = ComputeMode()
"""The mode with float32, the BLAS and one thread."""


def choose_device(name: str) -> torch.device:
    """Return the device `name`; "auto" is "cuda" if available, else "cpu". Raises EnsueError for a missing device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = re.fullmatch(r"([a-z]+)(:\d{1,3})?", name)
    if kind is None or kind[1] not in DEVICES:
        raise EnsueError(
            f'no device "{name}"{nearest(name, ["auto", *DEVICES])}; expected auto, {", ".join(DEVICES)}, cuda:1, ...'
        )
    device = torch.device("cpu" if kind[1] == "cpu" else name)
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):  # torch raises any of these exceptions
        raise EnsueError(f'no device "{name}" on this machine; auto chooses an available one') from None
    return device


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context with products in bfloat16, and sums and weights in float32; a null context for float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of torch or Python reports that memory is exhausted."""
    is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return is_known or (isinstance(error, RuntimeError) and "allocate memory" in str(error))


@contextmanager
def use_mode(mode: ComputeMode, device: str = "cpu") -> Iterator[None]:
    """Set threads and kernels during a `with` block, then restore the global state. `autocast` sets the precision."""
    with restore_process(device):
        # oneDNN compiles a product for each shape. Batches of texts have many shapes, so without a bound the memory of
        # a training run in bfloat16 grows by gigabytes (docs/log). The first product reads these variables.
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
            os.environ.setdefault(name, str(MAX_CACHED_PRODUCTS))
        with use_threads(mode.threads), use_products(mode.products), use_kernel(mode.kernel), flush_denormals():
            yield


@contextmanager
def restore_process(device: str = "cpu") -> Iterator[None]:
    """Restore the global state after a `with` block: environment variables, sys.path (importing
    onnxruntime.quantization changes it), warning filters, random generators, and the flushing of denormal numbers
    (sessions of onnxruntime change it).
    """
    path, flushes = list(sys.path), flushes_denormals()
    with restore_environment(), warnings.catch_warnings(), restore_generators(torch.device(device)), in_float32():
        try:
            yield
        finally:
            sys.path[:] = path
            torch.set_flush_denormal(flushes)


@contextmanager
def restore_environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def restore_generators(device: torch.device) -> AbstractContextManager[None]:
    """Restore torch's global generators of the CPU and of `device` after a `with` block."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = torch.get_device_module(device).current_device() if device.index is None else device.index
    return torch.random.fork_rng(devices=[index], device_type=device.type)


def use_threads(threads: int) -> AbstractContextManager[None]:
    """Set the number of threads during a `with` block."""
    return change_temporarily(torch.set_num_threads, threads, torch.get_num_threads())


def flush_denormals() -> AbstractContextManager[None]:
    """Flush denormal numbers, such as tails of a large softmax, to zero during a `with` block, since they are slow."""
    # at its first use, finfo computes the smallest denormal number, which must not happen inside the block
    for name in (np.float16, np.float32, np.float64, np.longdouble):
        np.finfo(name)
    return change_temporarily(torch.set_flush_denormal, True, flushes_denormals())


def flushes_denormals() -> bool:
    """Return whether this thread flushes denormal numbers to zero. torch has no getter for this setting."""
    return not (torch.tensor(1e-40, dtype=torch.float32) * 1).item()


def use_products(products: Products) -> AbstractContextManager[None]:
    """Set the library for float32 products during a `with` block.

    Only torch 2.8 needs `torch.set_float32_matmul_precision`, which cannot be unset; its getter may fail.
    """
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return change_temporarily(torch.set_float32_matmul_precision, products, torch.get_float32_matmul_precision())
    backends: tuple[Any, ...] = (torch.backends.mkldnn.matmul, torch.backends.cuda.matmul)  # type: ignore[attr-defined]
    before = tuple(backend.fp32_precision for backend in backends)

    def change(values: tuple[str, ...]) -> None:
        for backend, value in zip(backends, values, strict=True):
            backend.fp32_precision = value

    return change_temporarily(change, ("ieee", "ieee") if products == "highest" else ("bf16", "tf32"), before)


def use_kernel(kernel: Bf16Kernel | None) -> AbstractContextManager[None]:
    """Set the kernel of bfloat16 products during a `with` block. A kernel that this processor lacks is ignored, since
    a run may move to another machine.
    """
    before = bf16_kernel() if kernel else None
    if kernel is None or before is None or kernel not in bf16_kernels():
        return nullcontext()
    return change_temporarily(use_bf16_kernel, kernel, before)
