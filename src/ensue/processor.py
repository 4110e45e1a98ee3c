"""What the processor is, where the system says so (Linux)."""

from __future__ import annotations

import math
import os
import platform
from contextlib import suppress
from functools import cache


@cache
def name() -> str:
    """As "AMD EPYC 9B14"; where the system does not say, its kind, as "arm64"."""
    return _said("model name") or platform.processor() or platform.machine()


@cache
def features() -> frozenset[str]:
    """As "avx512f"; none where they are not known."""
    return frozenset((_said("flags") or _said("Features")).split())


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> float:
    """Bytes of memory that the machine has; infinite where the system does not say."""
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return math.inf


def _said(key: str) -> str:
    """Of the first core."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found, _, value = line.partition(":")
            if found.strip() == key:
                return value.strip()
    return ""
