"""The tasks. Each is a folder here and a line in `TASKS`, or an entry of an extension; no other file names a task."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from ensue.errors import RecipeError, nearest
from ensue.extension import entries, find_entry, loadable_entries
from ensue.tasks.entry import TaskEntry

TASKS = {
    "language-modeling": "ensue.tasks.language_modeling",
    "labeling": "ensue.tasks.labeling",
    "classification": "ensue.tasks.classification",
    "cutting": "ensue.tasks.labeling:CUTTING",
    "sequence-to-sequence": "ensue.tasks.sequence_to_sequence",
    "masked-language-modeling": "ensue.tasks.masked_language_modeling",
    "sentence-vectors": "ensue.tasks.masked_language_modeling:SENTENCES",
    "word-vectors": "ensue.tasks.word_vectors",
}
"""For each task's name in recipes and runs, the module that describes it, as `TASK` or by the name behind a colon. It
is imported at first use.
"""
DEFAULT_TASK = "language-modeling"
"""The task of a recipe that names none."""


def task_entry(name: object) -> TaskEntry:
    """The entry of a task. Raises RecipeError, with the nearest name, if there is none."""
    if isinstance(name, str) and name in TASKS:
        module, _, attribute = TASKS[name].partition(":")
        return getattr(import_module(module), attribute or "TASK")  # type: ignore[no-any-return]
    entry: TaskEntry | None = find_entry("task", name, TaskEntry) if isinstance(name, str) else None
    if entry is None:
        known = task_names()
        raise RecipeError(
            f'no task "{name}"{nearest(str(name), known)}; known: {", ".join(known)}; others need their extension'
        )
    return entry


def task_names() -> list[str]:
    """Return the names of all tasks, those of extensions last."""
    return [*TASKS, *entries("task")]


def has_task(name: object) -> bool:
    """Whether there is a task of this name."""
    return isinstance(name, str) and name in task_names()


def task_entries() -> Iterator[TaskEntry]:
    """The entries of all tasks; those of extensions come last."""
    yield from map(task_entry, TASKS)
    yield from loadable_entries("task", TaskEntry).values()


__all__ = ["DEFAULT_TASK", "TASKS", "TaskEntry", "has_task", "task_entries", "task_entry", "task_names"]
