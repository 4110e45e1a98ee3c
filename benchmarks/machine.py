"""What a measurement was made on, in one line for the tables."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import torch


def describe_machine(*, seed: int) -> str:
    """Date, processor, versions, threads and seed."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{datetime.date.today().isoformat()}, {model}, {os.cpu_count()} cores (load {load:.1f} at the start), "
        f"torch {torch.__version__}, {torch.get_num_threads()} thread, seed {seed}\n"
    )
