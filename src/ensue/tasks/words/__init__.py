"""Shared by the tasks that read words: labeling and classification."""

COMMANDS = {
    "predict": frozenset({"format", "splitter", "vectors", "shard"}),
    "evaluate": frozenset({"format", "vectors"}),
    "inspect": frozenset({"vectors"}),
}
"""The commands that take a run of these tasks, with the options that not all tasks have."""
