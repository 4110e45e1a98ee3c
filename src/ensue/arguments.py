"""Checks of arguments in Python: a wrong type is a TypeError of one line, a number out of bounds an EnsueError."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from typing import Any

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
