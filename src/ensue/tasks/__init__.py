"""The tasks. A task is a folder with a line in `TASKS`, or an extension's entry. The core names no task elsewhere."""

from collections.abc import Iterator
from importlib import import_module

from ensue.errors import RecipeError, nearest
from ensue.extension import entries, find_entry, loadable_entries
from ensue.tasks.entry import TaskEntry

TASKS = {
    "language-modeling": "ensue.tasks.language_modeling", "labeling": "ensue.tasks.labeling",
    "classification": "ensue.tasks.classification", "cutting": "ensue.tasks.labeling:CUTTING",
    "sequence-to-sequence": "ensue.tasks.sequence_to_sequence",
    "masked-language-modeling": "ensue.tasks.masked_language_modeling",
    "sentence-vectors": "ensue.tasks.masked_language_modeling:SENTENCES",
}  # fmt: skip
"""The module of the `TaskEntry` for each name of a task in recipes and runs. A module is imported at first use. The
entry has the name `TASK`, or the name after the colon.
"""
DEFAULT_TASK = "language-modeling"
"""The task of a recipe without the key `task`."""


def task_entry(name: object) -> TaskEntry:
    """Return the entry of a task. Raise RecipeError, with the nearest name, for an unknown task."""
    if isinstance(name, str) and name in TASKS:
        module, _, attribute = TASKS[name].partition(":")
        return getattr(import_module(module), attribute or "TASK")
    entry: TaskEntry | None = find_entry("task", name, TaskEntry) if isinstance(name, str) else None
    if entry is None:
        names = task_names()
        raise RecipeError(
            f'no task "{name}"{nearest(str(name), names)}; known: {", ".join(names)}; others need their extension'
        )
    return entry


def task_names() -> list[str]:
    """Return the names of all tasks; tasks of extensions come last."""
    return [*TASKS, *entries("task")]


def has_task(name: object) -> bool:
    """Return whether a task has this name."""
    return isinstance(name, str) and name in task_names()


def task_entries() -> Iterator[TaskEntry]:
    """Yield the entries of all tasks; tasks of extensions come last."""
    yield from map(task_entry, TASKS)
    yield from loadable_entries("task", TaskEntry).values()


__all__ = ["DEFAULT_TASK", "TASKS", "TaskEntry", "has_task", "task_entries", "task_entry", "task_names"]
