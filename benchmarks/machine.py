"""What a measurement was made on, in one line for the tables."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import torch


def processor_name() -> str:
    """The first processor's; virtual machines leave out the generation, so its family and model stand behind."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "model name" not in told:
        return platform.processor()
    if "cpu family" not in told:
        return told["model name"]
    return f"{told['model name']} (family {told['cpu family']}, model {told['model']})"


def describe_machine(*, seed: int) -> str:
    """Date, processor, versions, threads and seed."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{datetime.date.today().isoformat()}, {processor_name()}, {os.cpu_count()} cores "
        f"(load {load:.1f} at the start), torch {torch.__version__}, {torch.get_num_threads()} thread, seed {seed}\n"
    )
