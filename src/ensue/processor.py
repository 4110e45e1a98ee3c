"""The processor: name, features, cores and memory, as far as the system tells them."""

from __future__ import annotations

import ctypes
import math
import os
import platform
from contextlib import suppress
from functools import cache
from typing import Literal

Precision = Literal["float32", "bfloat16"]
"""The type of numbers in products."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of settings in glibc's malloc.h."""
KEPT_BYTES = 1 << 30


@cache
def name() -> str:
    """Its name, such as "AMD EPYC 9B14"; if the system does not tell it, its kind, such as "arm64"."""
    return _said("model name") or platform.processor() or platform.machine()


@cache
def features() -> frozenset[str]:
    """Its features, such as "avx512f"; empty if they are not known."""
    return frozenset((_said("flags") or _said("Features")).split())


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> float:
    """The machine's memory in bytes; infinite if the system does not tell it."""
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return math.inf


def _said(key: str) -> str:
    """The value of a key in /proc/cpuinfo for the first core; "" if there is none."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found, _, value = line.partition(":")
            if found.strip() == key:
                return value.strip()
    return ""


def keep_freed_memory() -> bool:
    """Has this process keep up to a gigabyte of what it frees, for what it needs next. False without glibc.

    By itself glibc gives large arrays back to the system at once. Then each training step takes them anew, page by
    page, zeroed, which for large tables takes longer than to compute. It is a setting of the whole process, so only
    programs of ensue's own call this, no function of the library.
    """
    with suppress(OSError, AttributeError, TypeError, ValueError):  # Windows asks for a name
        libc = ctypes.CDLL(None)
        mallopt = libc.mallopt
        libc.malloc_trim(0)  # what is free by now
        return bool(mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
    return False
