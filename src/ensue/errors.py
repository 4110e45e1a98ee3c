"""Mistakes of the user, as exceptions whose message is one clear line.

A message says what is wrong, where, what was expected and what was found. The command line prints it and exits with
status 2; anything that is not an `EnsueError` is a bug and shows its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class EnsueError(Exception):
    """The base of every error that a user can correct."""

    def __str__(self) -> str:
        """The message; control characters, such as those of an odd file name, are escaped."""
        return _CONTROL.sub(lambda found: repr(found[0])[1:-1], super().__str__())


class DataError(EnsueError):
    """A file that cannot be read in its format; the message begins with `file:line:`."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(place + message)


class RecipeError(EnsueError):
    """A recipe with an unknown key, a wrong type, or values that do not fit together."""


class RunError(EnsueError):
    """A run directory that is missing, in use, damaged or of another version."""


class TrainingError(EnsueError):
    """Training that cannot continue: a loss that is not finite, a text that is too short, a full disk."""


class ContextError(EnsueError):
    """More positions than a model with learned positions has."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "..."?` for the known name that is closest to `name`, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""
