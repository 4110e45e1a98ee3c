"""The machine's profile: how long small training steps take in each way to compute, measured once and kept.

What a recipe leaves open (precision, products, kernel, threads) is chosen from the profile. So the same machine
computes the same run in the same bits, and each machine computes in its fastest way. A profile is kept under a key of
everything that could change it. If it is damaged, or of another machine, it is measured again.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator

from ensue import processor
from ensue.cache import written_beside
from ensue.cache_folders import cache_directory
from ensue.engine import bf16_kernels, has_bfloat16
from ensue.engine.c_library import fingerprint
from ensue.models.specification import Table
from ensue.parsing import ParseError, parse_json, read_bounded
from ensue.processor import Precision
from ensue.training.device import PLAIN, Products, Way, computing, products_set
from ensue.training.workloads import WORKLOADS, Workload, training_step
from ensue.version import VERSION

THREADS_GAIN, ARITHMETIC_GAIN = 1.2, 1.1
"""How many times as fast several threads, and bfloat16 or the products of oneDNN, have to be. On shared cores a narrow
win does not last, and exact products are worth a small loss.
"""
HOPELESS = 2.0
"""A way that takes this many times as long as another one is not measured further."""
SECONDS = 0.5
"""Seconds of measuring for each workload after a first round; there are at least four rounds."""
PRODUCTS_ERROR = 1e-5
"""The largest difference from float64 at which oneDNN's float32 products are used."""
MAX_BYTES = 1 << 20
MAX_ISA = "ONEDNN_MAX_CPU_ISA"
"""The variable that bounds the instructions that oneDNN uses."""

Say = Callable[[str], object]


class Machine(Table):
    """The properties of a machine that a profile depends on."""

    processor: str
    features: str
    """A digest of the processor's features, and of what torch and oneDNN are told to use of them."""
    cores: int
    torch: str
    ensue: str
    engine: str
    """A digest of the engine's source and the C compiler."""

    @classmethod
    def here(cls) -> Self:
        capability = torch.backends.cpu.get_cpu_capability()
        return cls(
            processor=processor.name(),
            features=_digest(" ".join([*sorted(processor.features()), capability, os.environ.get(MAX_ISA, "")])),
            cores=processor.cores(),
            torch=torch.__version__,
            ensue=VERSION,
            engine=fingerprint(),
        )

    @property
    def path(self) -> Path:
        """The path of its profile. Several machines may share a home directory."""
        return cache_directory() / "machines" / f"{_digest(self.model_dump_json())}.json"


class Timing(Table):
    way: Way
    milliseconds: float = Field(gt=0, allow_inf_nan=False)
    """Milliseconds of a training step: the lower quartile, since other work on the machine only makes it longer."""


class Profile(Table):
    """The timings of each workload, in the ways to compute that were compared."""

    format: Literal[1] = 1
    machine: Machine
    date: str
    load: float
    """The load at the beginning: the number of other processes that wanted a core, for each core."""
    steps: dict[Workload, list[Timing]]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for workload in WORKLOADS:
            ways = [timing.way for timing in self.steps.get(workload, [])]
            if PLAIN not in ways or len(set(ways)) < len(ways):
                raise ValueError(f"has no whole list of {workload}")
        return self

    @property
    def id(self) -> str:
        """A digest; each measurement has another one."""
        return _digest(self.model_dump_json())

    def best(self, workload: Workload, *, precision: Precision | None = None, threads: int | None = None) -> Way:
        """The fastest way by a margin, with this precision, and these threads or the next smaller timed number."""
        timings = self.steps[workload]
        found = [timing for timing in timings if precision in (None, timing.way.precision)]
        if not found:  # bfloat16, where there is no use for it, or torch fails with it
            return Way(precision=precision or PLAIN.precision, threads=threads or 1)
        if threads is not None:
            whole = {1, *(timing.way.threads for timing in timings if timing.way.precision == "bfloat16")}
            measured = max(number for number in whole if number <= threads)
            found = [timing for timing in found if timing.way.threads == measured]
        best = min(found, key=lambda timing: timing.milliseconds * _margin(timing.way)).way
        return best if threads is None else best.model_copy(update={"threads": threads})


def machine_profile(say: Say = lambda text: None, *, renew: bool = False) -> Profile:
    """This machine's profile: the kept one, else a new one. `say` is told that it is measured."""
    machine = Machine.here()
    kept = None if renew else _kept(machine)
    if kept is not None:
        return kept
    say("measuring once how this machine computes fastest, ten to twenty seconds; `ensue machine` shows what was found")
    profile = measure(machine)
    if not renew and (kept := _kept(machine)) is not None:  # another process has measured it meanwhile
        return kept
    try:
        _keep(profile)
    except OSError as error:
        say(f"the machine's profile cannot be kept ({error.strerror or error}): another run may compute otherwise")
        _unkept[machine.path] = profile
    return profile


_unkept: dict[Path, Profile] = {}
"""Profiles that could not be written; they hold for this process."""


def measure(machine: Machine) -> Profile:
    """Measures the machine's profile."""
    load = os.getloadavg()[0] / machine.cores if hasattr(os, "getloadavg") else 0.0
    return Profile(
        machine=machine,
        date=datetime.date.today().isoformat(),
        load=round(load, 2),
        steps={workload: _timings(workload) for workload in WORKLOADS},
    )


def ways(workload: Workload) -> list[Way]:
    """The ways to compare, the plain one first. A bag multiplies no matrices, so only its threads vary.

    A processor that multiplies in bfloat16 by other instructions is slower in it (docs/log), so this is not compared.
    """
    cores = processor.cores()
    counts = sorted({1, max(1, cores // 2), cores})
    if workload == "bag":
        return [Way(threads=threads) for threads in counts]
    plain: list[Products] = ["highest", "medium"] if medium_is_exact() else ["highest"]
    halves = (bf16_kernels() or (None,)) if has_bfloat16() else ()
    return [
        way
        for threads in counts
        for way in (
            *(Way(products=products, threads=threads) for products in plain),
            *(Way(precision="bfloat16", kernel=kernel, threads=threads) for kernel in halves),
        )
    ]


def _timings(workload: Workload) -> list[Timing]:
    """Times all ways in turns, so that other work on the machine slows all of them alike."""
    step = training_step(workload)

    def seconds(way: Way) -> float:
        with computing(way):
            begun = time.perf_counter()
            step(way.precision)
            return time.perf_counter() - begun

    found: dict[Way, list[float]] = {}
    for way in ways(workload):
        crowd = found.get(Way(threads=way.threads))
        if crowd and crowd[0] > HOPELESS * found[PLAIN][0]:  # so many threads stand in each other's way
            continue
        try:
            if way.threads == 1:
                seconds(way)  # the first call sets up
            found[way] = [seconds(way)]
        except (RuntimeError, MemoryError):  # what does not work here is not chosen
            if way == PLAIN:
                raise
    least = min(first for (first,) in found.values())
    hopeful = [way for way, (first,) in found.items() if first <= HOPELESS * least]
    begun = time.perf_counter()
    while len(found[hopeful[0]]) < 4 or time.perf_counter() - begun < SECONDS:
        for way in hopeful:
            found[way].append(seconds(way))
    return [Timing(way=way, milliseconds=1000 * sorted(times)[len(times) // 4]) for way, times in found.items()]


def _margin(way: Way) -> float:
    arithmetic = ARITHMETIC_GAIN if (way.precision, way.products) != (PLAIN.precision, PLAIN.products) else 1.0
    return arithmetic * (THREADS_GAIN if way.threads > 1 else 1.0)


def medium_is_exact() -> bool:
    """Whether oneDNN multiplies as exactly as the BLAS. It does not where "medium" means bfloat16."""
    a = torch.linspace(-1, 1, 512 * 512).view(512, 512)
    exact = a.double() @ a.double().t()
    with products_set("medium"):
        return float(((a @ a.t()).double() - exact).abs().max() / exact.abs().max()) < PRODUCTS_ERROR


def _kept(machine: Machine) -> Profile | None:
    """The kept profile, if it is complete and of this machine; else None."""
    try:
        profile = Profile.model_validate(parse_json(read_bounded(machine.path, MAX_BYTES)))
    except (OSError, ParseError, ValidationError):
        return _unkept.get(machine.path)
    return profile if profile.machine == machine else None


def _keep(profile: Profile) -> None:
    with written_beside(profile.machine.path) as partial:
        partial.write_text(profile.model_dump_json() + "\n", encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
