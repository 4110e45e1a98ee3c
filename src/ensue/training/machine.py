"""The machine's profile: the time of small training steps in each compute mode, measured once and cached.

The profile determines the precision, products, kernel and threads that a recipe does not set. So repeated runs on a
machine are equal to the bit, and each machine uses its fastest mode. A workload is measured when a run first needs it.
The cache key contains all properties that affect the times. A damaged profile is measured again.

A step has all operations of a run, from ids to updated weights, with sizes so small that it takes milliseconds.
"""

import datetime
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationError
from torch import Tensor, nn

from ensue import processor
from ensue.cache import atomic_file, cache_directory
from ensue.engine import bf16_kernels, has_bfloat16
from ensue.engine.c_library import fingerprint
from ensue.models.encoders import build_encoder
from ensue.models.ngram_bag import NgramBag
from ensue.models.specification import ONE_WAY, Directions, EncoderSpecification, LSTMEncoder, Table, TransformerEncoder
from ensue.nn import SoftmaxHead
from ensue.parsing import ParseError, parse_json, read_bounded
from ensue.processor import Precision
from ensue.recipe import Recipe
from ensue.training.device import DEFAULT_MODE, ComputeMode, Products, autocast, use_mode, use_products
from ensue.training.optimizer import AdamW
from ensue.version import VERSION

Workload = Literal["narrow", "wide", "words", "attention", "reader", "bag"]
WORKLOADS: tuple[Workload, ...] = get_args(Workload)
MIN_WIDE_D_MODEL = 384
"""The minimum `d_model` of recurrent language models for the workload `wide`; smaller models have `narrow`."""
MIN_WORDS_VOCABULARY = 5_000
"""The minimum vocabulary of language models that `words` represents, in which the softmax takes most of the step."""
CPU = torch.device("cpu")


def nearest_workload(recipe: Recipe, vocabulary_size: int) -> Workload:
    """Return the workload that represents a recipe. `vocabulary_size` is the size of the softmax over tokens, or 0."""
    encoder = recipe.layers
    if encoder is None or encoder.kind == "none":
        return "bag"
    if encoder.kind == "transformer":
        return "attention"
    if not vocabulary_size:
        return "reader"
    if vocabulary_size >= MIN_WORDS_VOCABULARY:
        return "words"
    return "wide" if encoder.d_model >= MIN_WIDE_D_MODEL else "narrow"


def training_step(workload: Workload) -> Callable[[Precision], None]:
    """Return a function that takes a training step with the same model and batch in each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, loss = BUILDERS[workload]()
    optimizer = AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(precision: Precision) -> None:
        with autocast(precision, CPU):
            total = loss()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


ModelAndLoss = tuple[nn.Module, Callable[[], Tensor]]


def _build_encoder(
    specification: EncoderSpecification, *, d_in: int, rows: int, length: int, symbols: int,
    min_length: int | None = None, directions: Directions = ONE_WAY,
) -> ModelAndLoss:  # fmt: skip
    """Return embeddings, layers and a softmax, and the loss of a batch with rows of `min_length` to `length` ids."""
    features, layers = nn.Embedding(symbols, d_in), build_encoder(specification, d_in=d_in, directions=directions)
    head = SoftmaxHead(layers.d_out, symbols)
    ids = torch.randint(symbols, (rows, length + 1))
    mask = None
    if min_length is not None:
        mask = torch.arange(length) < torch.linspace(min_length, length, rows).round().unsqueeze(1)

    def loss() -> Tensor:
        h, _ = layers(features(ids[:, :-1]), mask=mask)
        return head.total_nats(h, ids[:, 1:]) / ids.numel()

    return nn.ModuleList([features, layers, head]), loss


def _build_bag() -> ModelAndLoss:
    bag = NgramBag(2, longest=3, buckets=1 << 16)
    words, labels = torch.randint(1, 10_000, (32, 100)), torch.randint(2, (32,))
    return bag, lambda: F.cross_entropy(bag(words), labels)


BUILDERS: dict[Workload, Callable[[], ModelAndLoss]] = {
    "narrow": lambda: _build_encoder(LSTMEncoder(kind="lstm", d_model=256), d_in=64, rows=32, length=32, symbols=64),
    "wide": lambda: _build_encoder(LSTMEncoder(kind="lstm", d_model=512), d_in=512, rows=32, length=8, symbols=64),
    "words": lambda: _build_encoder(
        LSTMEncoder(kind="lstm", d_model=200), d_in=200, rows=20, length=10, symbols=10_000
    ),
    "attention": lambda: _build_encoder(
        TransformerEncoder(kind="transformer", d_model=192, context=64, positions="learned"),
        d_in=192, rows=8, length=64, symbols=512,
    ),
    "reader": lambda: _build_encoder(
        LSTMEncoder(kind="lstm", d_model=128),
        d_in=128, rows=32, length=30, symbols=32, min_length=10, directions=Directions(),
    ),
    "bag": _build_bag,
}  # fmt: skip


MIN_THREADS_GAIN, MIN_ARITHMETIC_GAIN = 1.2, 1.1
"""The minimum speedups for choosing several threads, and for choosing bfloat16 or oneDNN's products. A smaller speedup
by threads vanishes on shared cores, and a smaller speedup of products is not worth their rounding errors.
"""
MAX_SLOWDOWN = 2.0
"""Modes that take more than this many times as long as the fastest mode are timed only once."""
MEASURING_SECONDS = 0.5
"""The time for each workload after the first round. At least four rounds are timed."""
MAX_PRODUCTS_ERROR = 1e-5
"""The maximum relative error of oneDNN's float32 products, measured against float64; otherwise they are not used."""
MAX_PROFILE_BYTES = 1 << 20
ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
"""The environment variable that restricts the instructions of oneDNN."""

Notify = Callable[[str], object]


class Machine(Table):
    """The properties of a machine on which its profile depends."""

    processor: str
    features: str
    """A digest of the processor's features, and of the features that torch and oneDNN may use."""
    cores: int
    torch: str
    ensue: str
    engine: str
    """A digest of the engine's source and the C compiler."""

    @classmethod
    def current(cls) -> Self:
        """Return the properties of this machine."""
        capability = torch.backends.cpu.get_cpu_capability()
        return cls(
            processor=processor.name(),
            features=_digest(" ".join([*sorted(processor.features()), capability, os.environ.get(ISA_VARIABLE, "")])),
            cores=processor.cores(), torch=torch.__version__, ensue=VERSION, engine=fingerprint(),
        )  # fmt: skip

    @property
    def path(self) -> Path:
        """The path of the cached profile. Several machines may share a home directory."""
        return cache_directory() / "machines" / f"{_digest(self.model_dump_json())}.json"


class Timing(Table):
    """The time of a training step in a compute mode."""

    mode: ComputeMode = Field(alias="way")  # the key in cached profiles
    milliseconds: float = Field(gt=0, allow_inf_nan=False)
    """The lower quartile of the measured times, since other work on the machine only makes steps slower."""


class Profile(Table):
    """The times of the workloads that were measured, in the compared modes."""

    format: Literal[1] = 1
    machine: Machine
    date: str
    load: float
    """The load average over one minute per core, before the measurement."""
    steps: dict[Workload, list[Timing]]

    def problems(self) -> Iterator[str]:
        for workload, timings in self.steps.items():
            modes = {timing.mode for timing in timings}
            if DEFAULT_MODE not in modes or len(modes) < len(timings):
                yield f"incomplete or duplicate timings of {workload}"

    @property
    def id(self) -> str:
        """A digest that differs for each measurement."""
        return _digest(self.model_dump_json())

    def best(
        self, workload: Workload, *, precision: Precision | None = None, threads: int | None = None
    ) -> ComputeMode:
        """Return the fastest mode for a workload.

        Other modes than the default must be faster by a margin. `precision` and `threads` restrict the choice.
        """
        timings = [timing for timing in self.steps[workload] if precision in (None, timing.mode.precision)]
        if not timings:  # bfloat16 was not compared, or fails
            return ComputeMode(precision=precision or DEFAULT_MODE.precision, threads=threads or 1)
        if threads is not None:
            modes = [timing.mode for timing in self.steps[workload]]
            counts = {1, *(mode.threads for mode in modes if mode.precision == "bfloat16")}
            measured = max(count for count in counts if count <= threads)
            timings = [timing for timing in timings if timing.mode.threads == measured]
        best = min(timings, key=lambda timing: timing.milliseconds * _required_speedup(timing.mode)).mode
        return best if threads is None else best.model_copy(update={"threads": threads})


def machine_profile(
    notify: Notify = lambda text: None, *, workloads: Sequence[Workload] = WORKLOADS, renew: bool = False
) -> Profile:
    """Return this machine's profile from the cache, after measuring missing workloads. `notify` receives notes."""
    machine = Machine.current()
    cached = None if renew else _read_cached(machine)
    missing = [workload for workload in workloads if cached is None or workload not in cached.steps]
    if cached is not None and not missing:
        return cached
    notify(f"measuring the fastest compute mode once (about {3 * len(missing)} s); `ensue machine` shows the result")
    profile = measure(machine, missing)
    if not renew and (cached := _read_cached(machine)) is not None:  # another process may have added workloads
        profile = cached.model_copy(update={"steps": profile.steps | cached.steps})
    try:
        with atomic_file(machine.path) as partial:
            partial.write_text(profile.model_dump_json() + "\n", encoding="utf-8")
    except OSError as error:
        notify(f"the machine's profile cannot be cached ({error.strerror or error}): other runs may use other modes")
        _uncached[machine.path] = profile
    return profile


_uncached: dict[Path, Profile] = {}  # profiles that this process could not write to the cache


def measure(machine: Machine, workloads: Sequence[Workload]) -> Profile:
    """Measure the machine's profile for these workloads."""
    load = os.getloadavg()[0] / machine.cores if hasattr(os, "getloadavg") else 0.0
    return Profile(
        machine=machine, date=datetime.date.today().isoformat(), load=round(load, 2),
        steps={workload: _time_modes(workload) for workload in workloads},
    )  # fmt: skip


def compared_modes(workload: Workload) -> list[ComputeMode]:
    """Return the modes to compare, the default mode first. A bag has no matrix products, so only its threads vary.

    bfloat16 is not compared on processors that emulate it, since float32 is faster there (docs/log).
    """
    cores = processor.cores()
    counts = sorted({1, max(1, cores // 2), cores})
    if workload == "bag":
        return [ComputeMode(threads=threads) for threads in counts]
    products: list[Products] = ["highest", "medium"] if medium_is_exact() else ["highest"]
    kernels = (bf16_kernels() or (None,)) if has_bfloat16() else ()
    modes = [ComputeMode(products=library) for library in products]
    modes += [ComputeMode(precision="bfloat16", kernel=kernel) for kernel in kernels]
    return [mode.model_copy(update={"threads": threads}) for threads in counts for mode in modes]


def _time_modes(workload: Workload) -> list[Timing]:
    """Time all modes in turns, so that other work on the machine slows all modes equally."""
    step = training_step(workload)

    def seconds(mode: ComputeMode) -> float:
        with use_mode(mode):
            start = time.perf_counter()
            step(mode.precision)
            return time.perf_counter() - start

    times: dict[ComputeMode, list[float]] = {}
    for mode in compared_modes(workload):
        same_threads = times.get(ComputeMode(threads=mode.threads))
        if same_threads and same_threads[0] > MAX_SLOWDOWN * times[DEFAULT_MODE][0]:  # slow with this many threads
            continue
        try:
            if mode.threads == 1:
                seconds(mode)  # the first call allocates and compiles
            times[mode] = [seconds(mode)]
        except (RuntimeError, MemoryError):  # skip modes that fail on this machine
            if mode == DEFAULT_MODE:
                raise
    fastest = min(first for (first,) in times.values())
    fast_modes = [mode for mode, (first,) in times.items() if first <= MAX_SLOWDOWN * fastest]
    start = time.perf_counter()
    while len(times[fast_modes[0]]) < 4 or time.perf_counter() - start < MEASURING_SECONDS:
        for mode in fast_modes:
            times[mode].append(seconds(mode))
    return [Timing(way=mode, milliseconds=1000 * sorted(values)[len(values) // 4]) for mode, values in times.items()]


def _required_speedup(mode: ComputeMode) -> float:
    is_exact = (mode.precision, mode.products) == (DEFAULT_MODE.precision, DEFAULT_MODE.products)
    return (1.0 if is_exact else MIN_ARITHMETIC_GAIN) * (MIN_THREADS_GAIN if mode.threads > 1 else 1.0)


def medium_is_exact() -> bool:
    """Return whether oneDNN's products are as exact as those of the BLAS, not rounded to bfloat16."""
    a = torch.linspace(-1, 1, 512 * 512).view(512, 512)
    exact = a.double() @ a.double().t()
    with use_products("medium"):
        return float(((a @ a.t()).double() - exact).abs().max() / exact.abs().max()) < MAX_PRODUCTS_ERROR


def _read_cached(machine: Machine) -> Profile | None:
    try:
        profile = Profile.model_validate(parse_json(read_bounded(machine.path, MAX_PROFILE_BYTES)))
    except (OSError, ParseError, ValidationError):
        return _uncached.get(machine.path)
    return profile if profile.machine == machine else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
