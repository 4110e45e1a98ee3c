"""Shared by the tasks that read series of frames."""

from collections.abc import Mapping

COMMANDS: Mapping[str, frozenset[str]] = {
    "predict": frozenset({"shard"}),
    "evaluate": frozenset(),
    "inspect": frozenset(),
}
"""The commands that take a run of these tasks."""
