"""What a measurement was made on, in one line for the tables."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import torch


def processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def describe_machine(*, seed: int) -> str:
    """Date, processor, versions, threads and seed."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{datetime.date.today().isoformat()}, {processor_name()}, {os.cpu_count()} cores "
        f"(load {load:.1f} at the start), torch {torch.__version__}, {torch.get_num_threads()} thread, seed {seed}\n"
    )
