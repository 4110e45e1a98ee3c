"""The runtime of a run: device, precision, kernels and threads, chosen once and saved in config.json."""

import os
import platform
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError

from ensue.engine import bf16_kernel, bf16_kernels, has_bfloat16
from ensue.errors import EnsueError, RecipeError, RunError
from ensue.processor import Precision, cores
from ensue.ranks import process_group
from ensue.recipe import Recipe
from ensue.training.device import ComputeMode, choose_device
from ensue.training.machine import Notify, machine_profile, medium_is_exact, nearest_workload


class Runtime(ComputeMode):
    """The compute mode of a run, with the device and the versions."""

    model_config = ConfigDict(extra="ignore")

    device: str
    profile: str = ""
    """The id of the machine's profile from which the mode was chosen; "" without a profile."""
    torch: str = torch.__version__
    python: str = platform.python_version()
    machine: str = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def choose_runtime(
    recipe: Recipe, vocabulary_size: int, saved: Any, *, device: str, threads: int | None, notify: Notify
) -> Runtime:
    """Return the runtime of a run. `saved` is the runtime in config.json of a resumed run, or None.

    For a new run on a CPU, the machine's profile determines the runtime. All ranks have the same precision and kernels.
    Each rank has its own GPU, or at most an equal share of the machine's cores as threads. In an exact run, or with
    `threads`, each rank has the number of threads of a single process.
    """
    group = process_group()
    chosen: Runtime | None = None
    if group.is_first and saved is not None:
        chosen = _restore_runtime(recipe, saved, device=device, threads=threads, notify=notify)
    elif group.is_first:
        chosen = _new_runtime(recipe, vocabulary_size, device=device, threads=threads, notify=notify)
    runtime = Runtime.model_validate(group.broadcast(chosen.model_dump() if chosen else None))
    if group.size == 1:
        return runtime
    count = runtime.threads if threads or group.exact else min(runtime.threads, cores() // group.local_size)
    return runtime.model_copy(update={"threads": max(1, count), "device": _local_gpu(runtime.device, group.local_rank)})


def _local_gpu(device: str, local_rank: int) -> str:
    """Return the GPU of this rank. All ranks share a device that is not an NVIDIA GPU."""
    if not device.startswith("cuda"):
        return device
    if local_rank >= (count := torch.cuda.device_count()):
        raise EnsueError(f"each process needs its own GPU; this machine has {count}; --device cpu needs none")
    return f"cuda:{local_rank}"


def _new_runtime(recipe: Recipe, vocabulary_size: int, *, device: str, threads: int | None, notify: Notify) -> Runtime:
    chosen = _choose_device(recipe, device)
    if recipe.is_gradient_free:
        return Runtime(device=str(chosen), threads=threads or 1)
    precision = None if recipe.train.precision == "auto" else recipe.train.precision
    if chosen.type != "cpu":
        fastest: Precision = "bfloat16" if chosen.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
        return Runtime(device=str(chosen), precision=precision or fastest, threads=threads or 1)
    if precision == "bfloat16" and not has_bfloat16():
        raise RecipeError(
            "train.precision is bfloat16: this processor lacks bfloat16 instructions, without which bfloat16 is many"
            " times slower than float32; expected float32 or auto"
        )
    workload = nearest_workload(recipe, vocabulary_size)
    profile = machine_profile(notify, workloads=[workload])
    mode = profile.best(workload, precision=precision, threads=threads)
    return Runtime(device=str(chosen), profile=profile.id, **mode.model_dump())


def _choose_device(recipe: Recipe, name: str) -> torch.device:
    if not recipe.is_gradient_free:
        return choose_device(name)
    if name != "auto" and choose_device(name).type != "cpu":
        raise EnsueError(f"a {recipe.what} is trained on the CPU; found --device {name}")
    return torch.device("cpu")


def _restore_runtime(recipe: Recipe, saved: Any, *, device: str, threads: int | None, notify: Notify) -> Runtime:
    try:
        runtime = Runtime.model_validate(saved)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"config.json: damaged: runtime.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    chosen = _choose_device(recipe, runtime.device if device == "auto" else device)
    runtime = runtime.model_copy(update={"device": str(chosen), "threads": threads or runtime.threads})
    return _with_supported_features(runtime, notify) if chosen.type == "cpu" else runtime


def _with_supported_features(saved: Runtime, notify: Notify) -> Runtime:
    """Return the runtime without features that this processor lacks, and report the replacements in one line."""
    changes: dict[str, str | None] = {}
    notes = []
    if saved.precision == "bfloat16" and not has_bfloat16():
        changes["precision"] = "float32"
        notes.append("float32 in place of bfloat16")
    elif saved.kernel not in (None, *bf16_kernels()):
        changes["kernel"] = bf16_kernel()
        notes.append(f"bfloat16 by {changes['kernel'] or 'torch'} in place of {saved.kernel}")
    if saved.products == "medium" and not medium_is_exact():
        changes["products"] = "highest"
        notes.append("float32 products of the BLAS in place of oneDNN's")
    if notes:
        notify(f"this processor lacks a feature that the run used: the run continues with {' and '.join(notes)}")
    return saved.model_copy(update=changes)
