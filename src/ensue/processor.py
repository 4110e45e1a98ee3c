"""The name, features, cores and memory of this machine's processor."""

import ctypes
import math
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

Precision = Literal["float32", "bfloat16"]
"""The data type of matrix products."""
InferencePrecision = Literal[Precision, "int8"]
"""The data type of matrix products of a trained model."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of `mallopt` in glibc's malloc.h."""
MAX_FREED_BYTES = 1 << 30


@cache
def name() -> str:
    """Return the name, such as "AMD EPYC 9B14"; if it is unknown, the architecture, such as "arm64"."""
    return _read_cpuinfo("model name") or platform.processor() or platform.machine()


@cache
def features() -> frozenset[str]:
    """Return the features, such as "avx512f"; an empty set if they are unknown."""
    return frozenset((_read_cpuinfo("flags") or _read_cpuinfo("Features")).split())


def cores() -> int:
    """Return the number of cores for this process: the minimum of its affinity and the quotas of its control groups."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [int(quota) / int(period) for quota, period in map(str.split, read_cgroups("cpu.max")) if quota != "max"]
    return max(1, min([available, *map(math.ceil, quotas)]))


def memory() -> float:
    """Return the memory for this process in bytes: the minimum of the machine's and the limits of its control groups.

    The result is infinite if all of these are unknown.
    """
    limits = [float(limit) for limit in read_cgroups("memory.max", "memory.limit_in_bytes") if limit != "max"]
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(limits, default=math.inf)


@cache
def read_cgroups(*names: str, file: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> list[str]:
    """Return the contents of the files `names` in the control groups of this process, and in their parents.

    `names` are files of version 1 or 2, such as `memory.max`. `file` lists the groups in lines
    `NUMBER:CONTROLLER:PATH`, and `root` is their mount point, in a container the mount point of its group.
    """
    paths = set[Path]()
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            _, controller, location = line.split(":", 2)
            group = root / controller / location.lstrip("/")
            paths |= {folder / name for folder in (group, *group.parents) for name in names}
    contents = []
    for path in paths:
        with suppress(OSError, UnicodeError):
            contents.append(path.read_text(encoding="utf-8").strip())
    return contents


def _read_cpuinfo(key: str) -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return ""


def keep_freed_memory() -> bool:
    """Make glibc keep up to MAX_FREED_BYTES of freed memory for later allocations. Returns whether this has succeeded.

    By default, glibc returns the memory of a large array to the system as soon as it is freed. Each training step then
    faults in and zeroes the same pages again, which for large tables takes longer than the computation. The setting is
    global, so commands call this function, but the library does not.
    """
    with suppress(OSError, AttributeError, TypeError, ValueError):  # Windows has no default library
        libc = ctypes.CDLL(None)
        mallopt = libc.mallopt
        libc.malloc_trim(0)  # returns memory that is already free
        return bool(mallopt(M_MMAP_THRESHOLD, MAX_FREED_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, MAX_FREED_BYTES))
    return False
