"""Checkpoints of training, complete or absent.

`checkpoints/step-N/` has the weights, the averaged weights if any, the optimizer's moments, the state carried between
segments, the counters and the best weights so far. The directory is written under a temporary name, flushed and
renamed, so that `step-N` is complete even after a crash or a power failure. Only the two newest checkpoints stay. No
random state is saved, since the random stream of a step is derived from the seed and the step's number.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ensue.ranks import is_sharded, process_group
from ensue.runs.manifest import Manifest, entry_of
from ensue.runs.schema import DamagedError, FileEntry, ManifestContent, Progress, read_and_validate
from ensue.runs.weights import flush, load_parameters, read_tensors, serialize, write_tensors, write_text
from ensue.types import State, leaves, map_state

MAX_CHECKPOINTS = 2
AVERAGE = "average.safetensors"
"""The file of the averaged weights; absent with `train.average` 0."""
BEST = "best.safetensors"
"""The file of the best weights so far; absent before the first validation."""
SET_BY_RUN = {"params", "lr", "weight_decay", "decay", "scale", "partly"}
"""The keys of an optimizer's groups that the run sets before each step."""


def save_checkpoint(
    directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: State, progress: Progress, *,
    best: Path | None = None, log: FileEntry | None = None, average: nn.Module | None = None,
) -> Path:  # fmt: skip
    """Write a checkpoint on rank 0, then remove old checkpoints. `state` is the carried state of all rows.

    If tensors are sharded, the other ranks must call `gather_shards` meanwhile. `best` is the file of the best weights,
    if an earlier step was the best, and `log` the manifest entry of `metrics.jsonl`. If there is the model `average`,
    its averaged weights are the weights of this step.
    """
    target = directory / f"step-{progress.step}"
    if target.exists():
        return target
    partial = directory / f".step-{progress.step}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for name, tensors in _iterate_tensor_files(model, optimizer, average):
            write_tensors(partial / name, tensors)
        write_tensors(partial / "state.safetensors", {str(i): leaf for i, leaf in enumerate(leaves(state))})
        write_text(partial / "progress.json", json.dumps(progress.model_dump(), indent=2) + "\n")
        if progress.best_step:
            if progress.best_step == progress.step:
                best = partial / ("model.safetensors" if average is None else AVERAGE)
            assert best is not None
            link_or_copy(best, partial / BEST)
        entries = {path.name: entry_of(path) for path in sorted(partial.iterdir())}
        Manifest(partial).write(ManifestContent(files=entries, log=log))
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    flush(directory)
    for old in complete_checkpoints(directory)[:-MAX_CHECKPOINTS]:  # a rename is atomic, rmtree is not
        renamed = old.with_name(f".{old.name}.old")
        shutil.rmtree(renamed, ignore_errors=True)
        old.rename(renamed)
    for leftover in directory.glob(".step-*"):  # renamed checkpoints, and files of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    return target


def gather_shards(model: nn.Module, optimizer: torch.optim.Optimizer, *, average: nn.Module | None = None) -> None:
    """Take part in the all-gather while rank 0 writes the checkpoint."""
    for _, tensors in _iterate_tensor_files(model, optimizer, average):
        for _ in serialize({name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}):
            pass


def _iterate_tensor_files(
    model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the name and the tensors of each file whose tensors may be sharded."""
    yield "model.safetensors", dict(model.named_parameters())
    if average is not None:
        yield AVERAGE, dict(average.named_parameters())
    yield "optimizer.safetensors", _collect_moments(optimizer)


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, initial_state: State, *,
    average: nn.Module | None = None,
) -> tuple[State, Progress]:  # fmt: skip
    """Load a checkpoint into model, optimizer and average. Returns the carried state of all rows, and the counters.

    `initial_state` has the structure of the carried state. Raises RunError if a file is damaged or does not match.
    """
    manifest = Manifest(path)
    progress: Progress = read_and_validate(Progress, path / "progress.json", lambda: manifest.read("progress.json"))
    weights, moments, carried = (
        manifest.check(name) for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors")
    )
    _load_moments(optimizer, read_tensors(moments), moments)
    load_parameters(model, read_tensors(weights), weights)
    if average is not None:
        averaged = manifest.check(AVERAGE)
        load_parameters(average, read_tensors(averaged), averaged)
    return _restore_state(read_tensors(carried), initial_state, carried), progress


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file to a second name, or copy it if the file system has no links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        flush(target)


def complete_checkpoints(directory: Path) -> list[Path]:
    """Return the paths of the checkpoints, ordered by step."""
    paths = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(paths, key=lambda path: int(path.name[5:]))


def _collect_moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter index and name, and its groups' numbers that differ from defaults."""
    content = optimizer.state_dict()
    entries = {str(index): entry for index, entry in content["state"].items()}
    for index, group in enumerate(content["param_groups"]):
        numbers = {name: group[name] for name in group.keys() - SET_BY_RUN if isinstance(group[name], int | float)}
        entries[f"group-{index}"] = {name: x for name, x in numbers.items() if x != optimizer.defaults.get(name)}
    return {
        f"{key}.{name}": value if isinstance(value, Tensor) else _to_tensor(value, name)
        for key, entry in entries.items()
        for name, value in entry.items()
        if value is not None
    }


def _to_tensor(value: object, name: str) -> Tensor:
    if not isinstance(value, int | float):
        raise TypeError(f"optimizer state {name}: expected a tensor or a number, found {value!r}")
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _load_moments(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], path: Path) -> None:
    """Load the moments of each parameter that had updates."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    groups = {f"group-{index}": group for index, group in enumerate(optimizer.param_groups)}
    saved: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        owner, _, name = key.partition(".")
        if not (owner.isdecimal() and int(owner) < len(parameters)) and owner not in groups:
            raise DamagedError(f"{path}: does not match the model of {len(parameters)} parameters: found {key}")
        saved.setdefault(owner, {})[name] = value
    _take_empty_step(optimizer, [parameters[int(owner)] for owner in saved if owner.isdecimal()])
    for owner, values in saved.items():
        if owner in groups:
            groups[owner] |= {name: value.item() for name, value in values.items()}
            continue
        entry = optimizer.state[parameters[int(owner)]]
        expected = {name for name, value in entry.items() if value is not None}
        if values.keys() != expected:
            names = [", ".join(sorted(keys)) for keys in (expected, values)]
            raise DamagedError(f"{path}: does not match the optimizer: expected {names[0]}, found {names[1]}")
        for name, value in values.items():
            entry[name] = _fill(entry[name], value, path, f"{owner}.{name}")


def _take_empty_step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    """Let the optimizer create the moments of `parameters`. The caller then overwrites these moments."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    if parameters:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _fill(target: Any, value: Tensor, path: Path, key: str) -> Any:
    if not isinstance(target, Tensor):
        return type(target)(value.item())
    if value.dtype != target.dtype:
        raise DamagedError(f"{path}: does not match the model: {key} should be in {target.dtype}, is in {value.dtype}")
    if value.shape != target.shape:
        expected, actual = tuple(target.shape), tuple(value.shape)
        raise DamagedError(f"{path}: does not match the model: {key} should be {expected}, is {actual}")
    if is_sharded(target):
        process_group().copy_shard(target, value)
    else:
        target.copy_(value)
    return target


def _restore_state(saved: dict[str, Tensor], initial_state: State, path: Path) -> State:
    """Return the saved state with the structure of `initial_state`; None if no state was carried."""
    if not saved:
        return None
    expected = {str(index): leaf.shape for index, leaf in enumerate(leaves(initial_state))}
    actual = {name: leaf.shape for name, leaf in saved.items()}
    if actual != expected:
        shapes = [", ".join(str(tuple(shape)) for shape in table.values()) or "none" for table in (expected, actual)]
        raise DamagedError(f"{path}: does not match the state of the model: expected {shapes[0]}, found {shapes[1]}")
    indices = iter(range(len(saved)))

    def to_device(leaf: Tensor) -> Tensor:
        value = saved[str(next(indices))]
        if value.dtype not in (leaf.dtype, torch.bfloat16):  # layers under autocast may return bfloat16
            raise DamagedError(
                f"{path}: does not match the state of the model: in {value.dtype}, expected {leaf.dtype}"
            )
        return value.to(leaf.device)

    return map_state(to_device, initial_state)
