"""The description of the machine above the table of a benchmark."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import torch


def processor_name() -> str:
    """Return the name of the first processor, with its family and model, since names in virtual machines are vague."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "model name" not in fields:
        return platform.processor()
    if "cpu family" not in fields:
        return fields["model name"]
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def describe_machine(*, seed: int) -> str:
    """Return a line with date, processor, load, version of torch, threads and seed."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{datetime.date.today().isoformat()}, {processor_name()}, {os.cpu_count()} cores "
        f"(load {load:.1f} at the start), torch {torch.__version__}, {torch.get_num_threads()} thread, seed {seed}\n"
    )
