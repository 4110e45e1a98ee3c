"""What the processor is, where the system says so (Linux)."""

from __future__ import annotations

from contextlib import suppress
from functools import cache


@cache
def maker() -> str:
    """As "GenuineIntel"; nothing where it is not known."""
    return _said("vendor_id")


@cache
def features() -> frozenset[str]:
    """As "avx512f"; none where they are not known."""
    return frozenset((_said("flags") or _said("Features")).split())


def _said(name: str) -> str:
    """Of the first core."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""
