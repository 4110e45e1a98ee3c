"""Checks of arguments in Python: a wrong type is a TypeError of one line, a number out of bounds an EnsueError.

A setting that is a number is declared once, as an `Option` in the annotation of a dataclass. From there the command
line has its option, and the server its field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from os import PathLike
from typing import Any, NamedTuple, get_args, get_type_hints

from ensue.errors import EnsueError
from ensue.parsing import shown


def check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises TypeError unless `value` is of the `kind`, which `expected` describes. True and False are not numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise TypeError(f"{name} is {shown(value)}; expected {expected}")


def check_path(name: str, value: Any) -> None:
    """Raises TypeError unless `value` is a string or a path."""
    check_type(name, value, (str, PathLike), "a path")


def check_texts(value: Any, expected: str) -> None:
    """Raises TypeError unless `value` is a collection, and EnsueError for a single text."""
    if isinstance(value, str):
        raise EnsueError("predict takes a list of texts; for one of them: predict([text])")
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"predict takes a list of {expected}; found {shown(value)}")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raises TypeError unless `value` is a whole number, and EnsueError unless it is from `least` to `most`."""
    check_type(name, value, Integral, "a whole number")
    if not least <= value <= most:
        raise EnsueError(f"{name} is {shown(value)}; expected a whole number from {least:,} to {most:,}")


def check_share(name: str, value: Any) -> None:
    """Raises TypeError unless `value` is a number, and EnsueError unless it is from 0 to 1."""
    check_type(name, value, Real, "a number")
    if not 0 <= value <= 1:
        raise EnsueError(f"{name} is {shown(value)}; expected a number from 0 to 1")


@dataclass(frozen=True)
class Option:
    """The bounds of a number, and how people give it."""

    least: float
    most: float
    help: str = ""
    """The help of the command line; "" if no command has the option."""
    name: str = ""
    """The name on the command line, if it is another one."""
    expected: str = ""
    """The bounds in words, if they are not "a number from `least` to `most`"."""
    is_above_least: bool = False
    """Whether `least` itself is out of bounds."""
    served: tuple[float, float] | None = None
    """The bounds of the field in a request to a server; None if requests have no such field."""
    neutral: float | None = None
    """The value of that field that changes nothing, if it is not null."""


class Setting(NamedTuple):
    """A setting that was declared: its `kind` is int or float, None is allowed where it is the default."""

    kind: type
    default: Any
    option: Option

    def check(self, name: str, value: Any) -> None:
        """Raises TypeError for a value that is no number, and EnsueError for one out of bounds."""
        option, kind = self.option, "a whole number" if self.kind is int else "a number"
        if value is None and self.default is None:
            return
        check_type(name, value, Integral if self.kind is int else Real, kind)
        if not option.least <= value <= option.most or (option.is_above_least and value == option.least):
            expected = option.expected or f"{kind} from {option.least:,} to {option.most:,}"
            raise EnsueError(f"{name} is {shown(value)}; expected {expected}")


@cache
def settings_of(declared: type) -> Mapping[str, Setting]:
    """The fields of a dataclass that are declared as an `Option`, by name."""
    found = {}
    hints = get_type_hints(declared, include_extras=True)
    for field in fields(declared):
        kind, *notes = get_args(hints[field.name]) or (None,)
        for option in notes:
            if isinstance(option, Option):
                found[field.name] = Setting(int if kind in (int, int | None) else float, field.default, option)
    return found


def check_settings(value: Any) -> None:
    """Raises TypeError or EnsueError for a field that its `Option` does not allow."""
    for name, setting in settings_of(value.__class__).items():
        setting.check(name, getattr(value, name))


def by_option_names(declared: type) -> dict[str, str]:
    """The fields of a dataclass by the names of their options."""
    return {setting.option.name or name: name for name, setting in settings_of(declared).items()}
