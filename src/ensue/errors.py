"""Mistakes of the user, as exceptions whose message is one clear line.

A message says what is wrong, where, what was expected and what was found. The command line prints it and exits with
status 2; anything that is not an `EnsueError` is a bug and shows its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LONGEST = 5000
"""The most characters of a message. A path can have 4,096; other arguments can have any number."""
_OPTIONS = (
    (re.compile(r"(?<![\w-])--(overwrite|resume)\b(?![=-])"), r"\1=True"),
    (re.compile(r"(?<![\w-])--(out|errors|pool|train|valid|test)\b(?![=-])"), r"\1"),
    (re.compile(r"(?<![\w-])--set ([\w.]+)=([\w.]+) and ([\w.]+)=([\w.]+)"), r'settings={"\1": "\2", "\3": "\4"}'),
    (re.compile(r"(?<![\w-])--set ([\w.]+)=([\w.]+)"), r'settings={"\1": "\2"}'),
)
"""Options in messages, and what a caller in Python writes in their places."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Matches what ends a line, what a terminal obeys, and what turns the direction of the text behind it."""


def in_one_line(text: str) -> str:
    """The text with line ends and control characters escaped, and without its middle if it is longer than `LONGEST`."""
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    half = LONGEST // 2 - 2
    return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"


class EnsueError(Exception):
    """The base of every error that a user can correct."""

    def __str__(self) -> str:
        """The message in one line, whatever names and values are in it, with arguments in place of options."""
        return in_one_line(_in_python(self.in_options()))

    def in_options(self) -> str:
        """The message for the command line."""
        return super().__str__()


class DataError(EnsueError):
    """A file that cannot be read in its format; the message begins with `file:line:`.

    `options` has for each setting of a recipe that the message names the option that `ensue data` has in its place.
    """

    def __init__(
        self,
        message: str,
        path: str | Path | None = None,
        line: int | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        self.message, self.options = message, options or {}
        super().__init__(self.place + message)

    def with_options(self) -> DataError:
        """The error, in which advice on settings of a recipe becomes advice on options of `ensue data`."""
        message = self.message
        for setting, option in self.options.items():
            message = message.replace(setting, option)
        return DataError(self.place + message)


class RecipeError(EnsueError):
    """A recipe with an unknown key, a wrong type, or values that do not fit together."""


class RunError(EnsueError):
    """A run directory that is missing, in use, damaged or of another version."""


class MissingFileError(RunError):
    """A file that a repository of the hub does not have, or that is not kept of it, offline."""


class TrainingError(EnsueError):
    """Training that cannot continue: a loss that is not finite, a text that is too short, a full disk."""


class ContextError(EnsueError):
    """More positions than a model with learned positions has."""


class SilentError(EnsueError):
    """Another process of the same run has said what went wrong."""


def _in_python(message: str) -> str:
    text, command = re.split(r"(?=\bensue [a-z]|$)", message, maxsplit=1)  # of a shell
    for option, argument in _OPTIONS:
        text = option.sub(argument, text)
    return text + command


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "..."?` for the known name that is closest to `name`, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first `most` names with commas between them, each short enough for a message, and whether there are more."""
    return ", ".join(distinct_names(names[:most])) + (", ..." if len(names) > most else "")


def distinct_names(names: Sequence[str], most: int = 40) -> list[str]:
    """The names in one line each, those longer than `most` characters cut at the end, or else in the middle, or not at
    all, so that different names stay different.
    """
    half = (most - 3) // 2
    shown = [name if len(name) <= most else f"{name[: most - 3]}..." for name in names]
    for longer in ([f"{name[:half]}...{name[-half:]}" for name in names], names):
        counts = Counter(text for text, _ in set(zip(shown, names, strict=True)))
        shown = [other if counts[text] > 1 else text for text, other in zip(shown, longer, strict=True)]
    return ["".join(char if char.isprintable() else repr(char)[1:-1] for char in name) for name in shown]
