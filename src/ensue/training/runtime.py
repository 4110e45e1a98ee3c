"""Where and how a run computes: chosen once and kept in config.json, since another way rounds differently."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError

from ensue.engine import bf16_kernel, bf16_kernels, has_bfloat16
from ensue.errors import EnsueError, RecipeError, RunError
from ensue.processor import cores
from ensue.ranks import ranks
from ensue.recipe import Recipe
from ensue.training.device import Way, choose_device, gpu_precision
from ensue.training.machine import Say, machine_profile, medium_is_exact
from ensue.training.workloads import nearest_workload


class Runtime(Way):
    model_config = ConfigDict(extra="ignore")

    device: str
    profile: str = ""
    """The id of the machine's profile from which the way was chosen; "" if there was none."""
    torch: str = torch.__version__
    python: str = platform.python_version()
    machine: str = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def choose_runtime(
    recipe: Recipe, vocabulary_size: int, kept: Any, *, device: str, threads: int | None, say: Say
) -> Runtime:
    """The runtime of a run. For a run that is resumed, `kept` is the runtime that it began with, in which only changes
    what is given here, and what this processor lacks.

    The machine is measured only for new runs on a CPU. Processes that train together compute in the same way, each on
    a GPU of its own, or with its share of the machine's threads; in an exact run with as many threads as one would.
    """
    group = ranks()
    found: Runtime | None = None
    if group.is_first and kept is not None:
        found = _continued(recipe, kept, device=device, threads=threads, say=say)
    elif group.is_first:
        found = _new(recipe, vocabulary_size, device=device, threads=threads, say=say)
    runtime = Runtime.model_validate(group.first_to_others(found.model_dump() if found else None))
    if group.size == 1:
        return runtime
    own = runtime.threads if threads or group.exact else min(runtime.threads, cores() // group.local_size)
    return runtime.model_copy(update={"threads": max(1, own), "device": _own_gpu(runtime.device, group.local_rank)})


def _own_gpu(device: str, local_rank: int) -> str:
    """The device, or the GPU of this process where it is one of NVIDIA's."""
    if not device.startswith("cuda"):
        return device
    if local_rank >= (found := torch.cuda.device_count()):
        raise EnsueError(f"each process needs a GPU of its own; this machine has {found}; --device cpu needs none")
    return f"cuda:{local_rank}"


def _new(recipe: Recipe, vocabulary_size: int, *, device: str, threads: int | None, say: Say) -> Runtime:
    chosen = _device(recipe, device)
    if recipe.has_own_update:
        return Runtime(device=str(chosen), threads=threads or 1)
    precision = None if recipe.train.precision == "auto" else recipe.train.precision
    if chosen.type != "cpu":
        return Runtime(device=str(chosen), precision=precision or gpu_precision(chosen), threads=threads or 1)
    if precision == "bfloat16" and not has_bfloat16():
        raise RecipeError(
            "train.precision: this processor does not multiply in bfloat16, which would take many times as long as"
            " float32; take float32 or auto"
        )
    profile = machine_profile(say)
    way = profile.best(nearest_workload(recipe, vocabulary_size), precision=precision, threads=threads)
    return Runtime(device=str(chosen), profile=profile.id, **way.model_dump())


def _device(recipe: Recipe, name: str) -> torch.device:
    """The device of that name; for a task with an update of its own the CPU."""
    if not recipe.has_own_update:
        return choose_device(name)
    if name != "auto" and choose_device(name).type != "cpu":
        raise EnsueError(f"a {recipe.what} is trained on the CPU; found --device {name}")
    return torch.device("cpu")


def _continued(recipe: Recipe, kept: Any, *, device: str, threads: int | None, say: Say) -> Runtime:
    try:
        runtime = Runtime.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"config.json: damaged: runtime.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    chosen = _device(recipe, runtime.device if device == "auto" else device)
    runtime = runtime.model_copy(update={"device": str(chosen), "threads": threads or runtime.threads})
    return _possible(runtime, say) if chosen.type == "cpu" else runtime


def _possible(kept: Runtime, say: Say) -> Runtime:
    """The runtime of a run that may have begun on another processor; one line says what has to change on this one."""
    changes: dict[str, str | None] = {}
    said = []
    if kept.precision == "bfloat16" and not has_bfloat16():
        changes["precision"] = "float32"
        said.append("float32 in place of bfloat16")
    elif kept.kernel not in (None, *bf16_kernels()):
        changes["kernel"] = bf16_kernel()
        said.append(f"bfloat16 by {changes['kernel'] or 'torch'} in place of {kept.kernel}")
    if kept.products == "medium" and not medium_is_exact():
        changes["products"] = "highest"
        said.append("float32 products of the BLAS in place of oneDNN's")
    if said:
        say(f"this processor lacks what the run began with: it goes on with {' and '.join(said)}")
    return kept.model_copy(update=changes)
