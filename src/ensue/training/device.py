"""Where and how to compute: the device, and on a CPU the type of the products, whose kernels they are, the threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from ensue.engine import bf16_kernel, bf16_kernels, use_bf16_kernel
from ensue.engine.products import Bf16Kernel
from ensue.errors import EnsueError, nearest

Precision = Literal["float32", "bfloat16"]
Products = Literal["highest", "medium"]
"""Whose kernels multiply in float32 on a CPU, in torch's words: the BLAS's, or oneDNN's."""
DEVICES = ("cpu", "cuda", "mps", "xpu")
"""What ensue runs on, as torch calls it."""


class Way(BaseModel):
    """A way to compute on a CPU. Another way is other roundings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    precision: Precision = "float32"
    products: Products = "highest"
    kernel: Bf16Kernel | None = None
    """What multiplies in bfloat16 in compiled steps; None: nothing, or what the engine takes by itself."""
    threads: int = Field(default=1, ge=1)


PLAIN = Way()
"""What needs no reason: float32, the BLAS, one thread."""


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" takes the first GPU, else the CPU. Raises `EnsueError` where it is not there."""
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
    """bfloat16 where the hardware has it; nothing is measured there."""
    return "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16, sums and weights in float32; or nothing."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch or Python says that memory was not enough."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


@contextmanager
def computing(way: Way) -> Iterator[None]:
    """Compute so, all but the precision, which is `autocast`'s; and as before afterwards."""
    with threads_set(way.threads), products_set(way.products), kernel_set(way.kernel), denormals_flushed():
        yield


@contextmanager
def threads_set(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Numbers too small to be normal, such as a large softmax's tails, count as zero: processors are slow with them."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def products_set(products: Products) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(products)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def kernel_set(kernel: Bf16Kernel | None) -> Iterator[None]:
    """Nothing is set where the kernel does not work, as that of a run from another machine."""
    before = bf16_kernel() if kernel else None
    if kernel is None or before is None or kernel not in bf16_kernels():
        yield
        return
    use_bf16_kernel(kernel)
    try:
        yield
    finally:
        use_bf16_kernel(before)
