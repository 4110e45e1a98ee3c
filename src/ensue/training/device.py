"""Where and how fast to compute: the device, the number of threads and the type of the products."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Literal

import torch

from ensue.errors import EnsueError, nearest
from ensue.processor import features, maker

Precision = Literal["float32", "bfloat16"]
Products = Literal["highest", "medium"]
"""Whose kernels multiply in float32 on a CPU, in torch's words: the BLAS's, or oneDNN's."""
REPEATS = 5
THREADS_GAIN = 1.2
"""By how much several threads have to be faster than one; on shared cores a narrow win does not last."""
PRODUCTS_ERROR = 1e-5
"""oneDNN's float32 products are taken only where they are not further from float64's than this."""
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
"""What a processor has that multiplies faster in bfloat16, as Linux calls it."""


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" takes the first GPU, else the CPU. Raises `EnsueError` where it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise EnsueError(
            f'no device "{name}"{nearest(name, ["auto", "cpu", "cuda", "mps"])}; try auto, cpu, cuda'
        ) from None
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises all of them
        raise EnsueError(f'no device "{name}" on this machine; auto takes what is there') from None
    return device


def choose_precision(name: Literal["auto", "float32", "bfloat16"], device: torch.device) -> Precision:
    """What "auto" is: bfloat16 where the hardware has instructions for it, float32 elsewhere.

    As with the products below, nothing is timed: the same run has to end in the same bits.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    return "bfloat16" if device.type == "cpu" and features() & BFLOAT16 else "float32"


def choose_products(device: torch.device) -> Products:
    """oneDNN's products where the BLAS is MKL, which leaves other processors than Intel's half idle (LOG.md).

    But not where "medium" would mean bfloat16.
    """
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    if device.type != "cpu" or not has_mkl or maker() in ("", "GenuineIntel"):
        return "highest"
    return "medium" if _error_of_medium() < PRODUCTS_ERROR else "highest"


@cache
def _error_of_medium() -> float:
    """Of products with that setting, relative to the largest."""
    a = torch.linspace(-1, 1, 512 * 512).view(512, 512)
    exact = a.double() @ a.double().t()
    with products_set("medium"):
        return float(((a @ a.t()).double() - exact).abs().max() / exact.abs().max())


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16, sums and weights in float32; or nothing."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch or Python says that memory was not enough."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def choose_threads(trial: Callable[[], None]) -> int:
    """The number of threads with which `trial` is fastest: one, or as many as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    candidates = sorted({1, max(1, cores // 2), cores})
    seconds = {}
    for threads in candidates:
        with threads_set(threads):
            seconds[threads] = _typical_seconds(trial)
    return min(candidates, key=lambda threads: seconds[threads] * (1.0 if threads == 1 else THREADS_GAIN))


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


def _typical_seconds(function: Callable[[], object]) -> float:
    seconds = []
    function()  # the first call sets up
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
