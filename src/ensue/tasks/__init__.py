"""The tasks. Each is a folder here and a line in `TASKS`; no other file names a task."""

from __future__ import annotations

from importlib import import_module

from ensue.errors import RecipeError, nearest
from ensue.tasks.entry import TaskEntry

TASKS = {
    "language-modeling": "ensue.tasks.language_modeling",
    "labeling": "ensue.tasks.labeling",
    "classification": "ensue.tasks.classification",
    "frame-classification": "ensue.tasks.frame_classification",
    "frame-labeling": "ensue.tasks.frame_labeling",
    "frame-prediction": "ensue.tasks.frame_prediction",
    "drawing": "ensue.tasks.drawing",
    "glimpses": "ensue.tasks.glimpses",
    "captioning": "ensue.tasks.captioning",
    "sequence-to-sequence": "ensue.tasks.sequence_to_sequence",
    "masked-language-modeling": "ensue.tasks.masked_language_modeling",
    "bidirectional-language-modeling": "ensue.tasks.bidirectional_language_modeling",
    "word-vectors": "ensue.tasks.word_vectors",
}
"""For each task's name in recipes and runs, the module whose `TASK` describes it. It is imported at first use."""
DEFAULT_TASK = "language-modeling"
"""The task of a recipe that names none."""


def task_entry(name: object) -> TaskEntry:
    """The entry of a task. Raises RecipeError, with the nearest name, if there is none."""
    if not isinstance(name, str) or name not in TASKS:
        raise RecipeError(f'no task "{name}"{nearest(str(name), TASKS)}; known: {", ".join(TASKS)}')
    entry: TaskEntry = import_module(TASKS[name]).TASK
    return entry


__all__ = ["DEFAULT_TASK", "TASKS", "TaskEntry", "task_entry"]
