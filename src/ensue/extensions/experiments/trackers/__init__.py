"""Trackers: the reports of a run, kept for other programs (spreadsheets, TensorBoard, Weights & Biases)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from ensue.errors import EnsueError, nearest
from ensue.extensions.experiments.trackers.tracker import CsvFile, TensorBoard, Tracker, WeightsAndBiases
from ensue.guests import find_guest, guests

TRACKERS: dict[str, tuple[type[Tracker], str]] = {
    "csv": (CsvFile, ""), "tensorboard": (TensorBoard, "tensorboardX"), "wandb": (WeightsAndBiases, "wandb"),
}  # fmt: skip
"""For each tracker its class and the package that it needs, which is in the extra of its name."""


def trackers_of(names: Sequence[str]) -> list[Tracker]:
    """The trackers of these names. Raises EnsueError for another name, and if its package is missing."""
    return [_tracker(name) for name in dict.fromkeys(names)]


def _tracker(name: str) -> Tracker:
    if name not in TRACKERS:
        guest: type[Tracker] | None = find_guest("tracker", name, Tracker)
        if guest is None:
            known = [*TRACKERS, *guests("tracker")]
            raise EnsueError(f'no tracker "{name}"{nearest(name, known)}; known: {", ".join(known)}')
        return guest()
    tracker, package = TRACKERS[name]
    if package and find_spec(package) is None:
        raise EnsueError(f"the tracker {name} needs the package {package}: pip install 'ensue[{name}]'")
    return tracker()
