"""The processor: name, features, cores and memory, as far as the system tells them."""

from __future__ import annotations

import ctypes
import math
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
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
    """Return the number of cores that this process may use: its affinity, bounded by the quota of its control group."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [int(quota) / int(period) for quota, period in map(str.split, control_group("cpu.max")) if quota != "max"]
    return max(1, min([available, *map(math.ceil, quotas)]))


def memory() -> float:
    """Return the bytes of memory that this process may use: the machine's, bounded by the limits of its control group.

    Infinite if the system does not tell it.
    """
    limits = [float(limit) for limit in control_group("memory.max", "memory.limit_in_bytes") if limit != "max"]
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(limits, default=math.inf)


def control_group(*files: str, of: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[str]:
    """Return the contents of these files in the control groups of this process and in all groups around them.

    Args:
        files: Names of the files, `memory.max` for example, of either version of control groups.
        of: The file with a line `NUMBER:CONTROLLER:PATH` for each group.
        root: Where the groups are mounted; a container sees its own group there.
    """
    paths = set[Path]()
    with suppress(OSError, ValueError):
        for line in of.read_text(encoding="utf-8").splitlines():
            _, controller, place = line.split(":", 2)
            group = root / controller / place.lstrip("/")
            paths |= {folder / file for folder in (group, *group.parents) for file in files}
    values = []
    for path in paths:
        with suppress(OSError, UnicodeError):
            values.append(path.read_text(encoding="utf-8").strip())
    return values


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
