"""Checkpoints: everything that the next step depends on, complete or absent.

`checkpoints/step-N/` holds the weights, the optimizer's moments, the state carried between segments and the counters.
It is written under another name, flushed and renamed, so a directory called step-N is whole whatever happened to the
process or the power; the two newest are kept. Random numbers need no place in it: a step's stream is derived from the
seed and the step's number.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ensue.errors import RunError
from ensue.training.weights import flush, load_parameters, read_tensors, write_tensors, write_text
from ensue.types import State, leaves, map_state

KEPT = 2


@dataclass
class Progress:
    """The counters of a run."""

    step: int = 0
    seconds: float = 0.0
    """Spent in training steps: without validation, samples and saving."""
    tokens: int = 0
    best: float | None = None
    """The best validation score so far, and its step."""
    best_step: int = 0
    stale: int = 0
    """Validations since then."""
    total_nats: float = 0.0
    """The training loss since the last report, and over how many predictions."""
    predictions: int = 0


def save_checkpoint(
    directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: State, progress: Progress
) -> Path:
    """Write `directory/step-N`, then remove the older ones. Raises OSError where the disk is full."""
    target = directory / f"step-{progress.step}"
    if target.exists():
        return target
    partial = directory / f".step-{progress.step}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        write_tensors(partial / "model.safetensors", dict(model.named_parameters()))
        write_tensors(partial / "optimizer.safetensors", _moments(optimizer))
        write_tensors(partial / "state.safetensors", {str(i): leaf for i, leaf in enumerate(leaves(state))})
        write_text(partial / "progress.json", json.dumps(asdict(progress), indent=2) + "\n")
        flush(partial)
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


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, initial_state: State
) -> tuple[State, Progress]:
    """Put weights and moments in place; returns the carried state (shaped like `initial_state`) and the counters."""
    load_parameters(model, read_tensors(path / "model.safetensors"), path)
    _load_moments(optimizer, read_tensors(path / "optimizer.safetensors"))
    try:
        progress = Progress(**json.loads((path / "progress.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path / 'progress.json'}: damaged: {error}") from None
    saved = read_tensors(path / "state.safetensors")
    if not saved:
        return None, progress
    order = iter(range(len(saved)))
    state = map_state(lambda leaf: saved[str(next(order))].to(leaf.device), initial_state)
    return state, progress


def complete_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints, the oldest first."""
    found = [path for path in directory.glob("step-*") if path.name[5:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def _remove(checkpoint: Path) -> None:
    """Take its name away first, so that a process killed meanwhile leaves no half of a checkpoint."""
    doomed = checkpoint.with_name(f".{checkpoint.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value
        for index, entry in state.items()
        for name, value in entry.items()
        if isinstance(value, Tensor)
    }


def _load_moments(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
