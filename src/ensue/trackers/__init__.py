"""Trackers, which pass the reports of a run to other programs: spreadsheets, TensorBoard, Weights & Biases."""

from collections.abc import Sequence
from importlib.util import find_spec

from ensue.errors import EnsueError, nearest
from ensue.extension import entries, find_entry
from ensue.trackers.tracker import Tracker


def trackers_of(names: Sequence[str]) -> list[Tracker]:
    """Return the trackers of these names. Raises EnsueError for an unknown name, and if a package is missing."""
    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        tracker: type[Tracker] | None = find_entry("tracker", name, Tracker)
        if tracker is None:
            tracker_names = list(entries("tracker"))
            raise EnsueError(f'no tracker "{name}"{nearest(name, tracker_names)}; known: {", ".join(tracker_names)}')
        if tracker.package and find_spec(tracker.package) is None:
            raise EnsueError(f"the tracker {name} needs the package {tracker.package}: pip install 'ensue[{name}]'")
        trackers.append(tracker())
    return trackers
