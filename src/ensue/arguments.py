"""What a caller in Python gives: a wrong type is a TypeError of one line, a number beyond its bounds an EnsueError."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from typing import Any

from ensue.errors import EnsueError
from ensue.parsing import shown


def check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """TypeError where `value` is not of the `kind`, which `expected` describes; True and False are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise TypeError(f"{name} is {shown(value)}; expected {expected}")


def check_path(name: str, value: Any) -> None:
    check_type(name, value, (str, PathLike), "a path")


def check_texts(value: Any, expected: str) -> None:
    """TypeError for what is no collection, EnsueError for one text in the place of several."""
    if isinstance(value, str):
        raise EnsueError("predict takes a list of texts; for one of them: predict([text])")
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"predict takes a list of {expected}; found {shown(value)}")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """TypeError for what is no whole number, EnsueError for one that is not from `least` to `most`."""
    check_type(name, value, Integral, "a whole number")
    if not least <= value <= most:
        raise EnsueError(f"{name} is {shown(value)}; expected a whole number from {least:,} to {most:,}")
