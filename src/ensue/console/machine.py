"""The machine's profile on stdout."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from ensue.training.device import Way
from ensue.training.machine import Profile
from ensue.training.workloads import WORKLOADS

BUSY = 0.75
"""The load for each core above which a measurement is unreliable."""


def show_machine(profile: Profile) -> None:
    """Prints the machine, and for each way a row with the milliseconds of each workload's step. The chosen ones are
    marked.
    """
    machine = profile.machine
    print(f"{machine.processor}, {machine.cores} cores, torch {machine.torch}; measured {profile.date}")
    if profile.load > BUSY:
        print(f"the machine was busy then (load {profile.load:.1f} a core): --renew measures again when it is quiet")
    best = {workload: profile.best(workload) for workload in WORKLOADS}
    found = {w: {timing.way: timing.milliseconds for timing in profile.steps[w]} for w in WORKLOADS}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("milliseconds a step", no_wrap=True)
    for workload in WORKLOADS:
        table.add_column(workload, justify="right")
    for way in dict.fromkeys(way for timings in found.values() for way in timings):
        table.add_row(_name(way), *(_cell(found[w].get(way), way == best[w]) for w in WORKLOADS))
    Console(highlight=False, soft_wrap=True).print(table)
    print("* what a run of that kind takes, unless train.precision or --threads say otherwise")
    print(f"kept in {machine.path}")


def machine_json(profile: Profile) -> str:
    """The profile as a JSON object, with its id, its file, and the way that is chosen for each workload."""
    chosen: dict[str, Any] = {workload: profile.best(workload).model_dump() for workload in WORKLOADS}
    more = {"id": profile.id, "path": str(profile.machine.path), "chosen": chosen}
    return json.dumps(profile.model_dump() | more, ensure_ascii=False)


def _name(way: Way) -> str:
    library = "BLAS" if way.products == "highest" else "oneDNN"
    by = f", {library}" if way.precision == "float32" else f", {way.kernel}" if way.kernel else ""
    return f"{way.precision}{by}, {way.threads} thread{'s' * (way.threads > 1)}"


def _cell(milliseconds: float | None, is_best: bool) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f}{'*' if is_best else ' '}"
