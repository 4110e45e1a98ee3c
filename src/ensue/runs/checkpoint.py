"""Checkpoints: everything that the next step depends on, complete or absent.

`checkpoints/step-N/` holds the weights, their average if there is one, the optimizer's moments, the state carried
between segments, the counters and the best weights so far. It is written under another name, flushed and renamed, so a
directory called step-N is complete, whatever happens to the process or the power. The two newest are kept. It holds no
random numbers, since a step's stream is derived from the seed and the step's number.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ensue.ranks import is_in_parts, ranks
from ensue.runs.manifest import Manifest, entry_of
from ensue.runs.schema import DamagedError, Entry, ManifestContent, Progress, checked, parsed, told
from ensue.runs.weights import flush, load_parameters, read_tensors, serialized, write_tensors, write_text
from ensue.types import State, leaves, map_state

KEPT = 2
AVERAGE = "average.safetensors"
"""The file of the averaged weights, in runs that average them."""
BEST = "best.safetensors"
"""The file of the best weights so far. There is none before the first validation."""
SET_BY_RUN = {"params", "lr", "weight_decay", "decay", "scale", "partly"}
"""The keys of an optimizer's groups that the run sets before each step."""


def save_checkpoint(
    directory: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: State,
    progress: Progress,
    *,
    best: Path | None = None,
    log: Entry | None = None,
    average: nn.Module | None = None,
) -> Path:
    """Writes `directory/step-N`, then removes older checkpoints. Raises OSError if the disk is full.

    `best` are the best weights so far, if they are not these. `log` is the entry of `metrics.jsonl` as it is now.
    `average` has the averaged weights; they are the ones that can be the best.
    """
    target = directory / f"step-{progress.step}"
    if target.exists():
        return target
    partial = directory / f".step-{progress.step}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for name, tensors in _files(model, optimizer, average):
            write_tensors(partial / name, tensors)
        write_tensors(partial / "state.safetensors", {str(i): leaf for i, leaf in enumerate(leaves(state))})
        write_text(partial / "progress.json", json.dumps(progress.model_dump(), indent=2) + "\n")
        if progress.best_step:
            if progress.best_step == progress.step:
                best = partial / ("model.safetensors" if average is None else AVERAGE)
            assert best is not None
            link(best, partial / BEST)
        entries = {path.name: entry_of(path) for path in sorted(partial.iterdir())}
        Manifest(partial).write(ManifestContent(files=entries, log=log))
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    flush(directory)
    for old in complete_checkpoints(directory)[:-KEPT]:
        _remove(old)
    for leftover in directory.glob(".step-*"):  # of a process that was killed while it wrote or removed
        shutil.rmtree(leftover, ignore_errors=True)
    return target


def give_parts(model: nn.Module, optimizer: torch.optim.Optimizer, *, average: nn.Module | None = None) -> None:
    """Gives another process, which saves a checkpoint meanwhile, what is held here."""
    for _, tensors in _files(model, optimizer, average):
        for _ in serialized({name: tensor for name, tensor in tensors.items() if is_in_parts(tensor)}):
            pass


def _files(
    model: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The files of what processes may hold in parts."""
    yield "model.safetensors", dict(model.named_parameters())
    if average is not None:
        yield AVERAGE, dict(average.named_parameters())
    yield "optimizer.safetensors", _moments(optimizer)


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    initial_state: State,
    *,
    average: nn.Module | None = None,
) -> tuple[State, Progress]:
    """Loads weights and moments, and the averaged weights into `average`; returns the carried state, with the form of
    `initial_state`, and the counters.

    Raises RunError for a file that is damaged, or that belongs to another model, optimizer or state.
    """
    manifest = Manifest(path)
    with told(path / "progress.json"):
        content = parsed(manifest.read("progress.json"))
    progress: Progress = checked(Progress, content, path / "progress.json")
    weights, moments, carried = (
        manifest.check(name) for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors")
    )
    _load_moments(optimizer, read_tensors(moments), moments)
    load_parameters(model, read_tensors(weights), weights)
    if average is not None:
        averaged = manifest.check(AVERAGE)
        load_parameters(average, read_tensors(averaged), averaged)
    return _carried(read_tensors(carried), initial_state, carried), progress


def link(source: Path, target: Path) -> None:
    """Gives a file a second name by a link, or copies it if the file system has no links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        flush(target)


def complete_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints, the oldest first."""
    found = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def _remove(checkpoint: Path) -> None:
    """Removes a checkpoint. It is renamed first, so that a kill leaves no incomplete checkpoint."""
    doomed = checkpoint.with_name(f".{checkpoint.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors and numbers by parameter number and name, and the numbers of groups that steps change."""
    content = optimizer.state_dict()
    entries = {str(index): entry for index, entry in content["state"].items()}
    for number, group in enumerate(content["param_groups"]):
        numbers = {name: group[name] for name in group.keys() - SET_BY_RUN if isinstance(group[name], int | float)}
        entries[f"group-{number}"] = {name: x for name, x in numbers.items() if x != optimizer.defaults.get(name)}
    return {
        f"{place}.{name}": value if isinstance(value, Tensor) else _number(value, name)
        for place, entry in entries.items()
        for name, value in entry.items()
        if value is not None
    }


def _number(value: object, name: str) -> Tensor:
    if not isinstance(value, int | float):
        raise TypeError(f"{name} of an optimizer: expected a tensor or a number, found {value!r}")
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _load_moments(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], path: Path) -> None:
    """Loads what the optimizer keeps for each parameter; a parameter without updates has nothing.

    Which names, shapes and types these are is seen from a step with the rate and gradients zero.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    saved: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        place, _, name = key.partition(".")
        if not (place.isdecimal() and int(place) < len(parameters)) and place not in _groups(optimizer):
            raise DamagedError(f"{path}: not of this model: it has {key}, the model {len(parameters)} parameters")
        saved.setdefault(place, {})[name] = value
    _take_empty_step(optimizer, [parameters[int(place)] for place in saved if place.isdecimal()])
    for place, found in saved.items():
        if place in (groups := _groups(optimizer)):
            groups[place] |= {name: value.item() for name, value in found.items()}
            continue
        entry = optimizer.state[parameters[int(place)]]
        expected = {name for name, value in entry.items() if value is not None}
        if found.keys() != expected:
            raise DamagedError(f"{path}: not of this optimizer: it keeps {_list(expected)}, not {_list(found)}")
        for name, value in found.items():
            entry[name] = _filled(entry[name], value, path, f"{place}.{name}")


def _groups(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    return {f"group-{number}": group for number, group in enumerate(optimizer.param_groups)}


def _take_empty_step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
    """Let the optimizer make what it keeps for these parameters, whose values are loaded afterwards."""
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


def _filled(place: Any, value: Tensor, path: Path, key: str) -> Any:
    """`place`, a tensor or number of an optimizer, with the saved value."""
    if not isinstance(place, Tensor):
        return type(place)(value.item())
    if value.dtype != place.dtype:
        raise DamagedError(f"{path}: not of this model: {key} should be in {place.dtype}, is in {value.dtype}")
    if value.shape != place.shape:
        raise DamagedError(f"{path}: not of this model: {key} should be {tuple(place.shape)}, is {tuple(value.shape)}")
    if is_in_parts(place):
        ranks().take(place, value)
    else:
        place.copy_(value)
    return place


def _carried(saved: dict[str, Tensor], initial_state: State, path: Path) -> State:
    """The saved state with the form of `initial_state`; None if no state is carried."""
    if not saved:
        return None
    expected = {str(number): leaf.shape for number, leaf in enumerate(leaves(initial_state))}
    found = {name: leaf.shape for name, leaf in saved.items()}
    if found != expected:
        shapes = [", ".join(str(tuple(shape)) for shape in part.values()) for part in (found, expected)]
        raise DamagedError(
            f"{path}: not a state of this model: it has {shapes[0] or 'none'}, not {shapes[1] or 'none'}"
        )
    order = iter(range(len(saved)))

    def placed(leaf: Tensor) -> Tensor:
        value = saved[str(next(order))]
        if value.dtype not in (leaf.dtype, torch.bfloat16):  # the second of layers that leave autocast to torch
            raise DamagedError(f"{path}: not a state of this model: in {value.dtype}, not in {leaf.dtype}")
        return value.to(leaf.device)

    return map_state(placed, initial_state)


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
