"""Sources in windows, so that a file of any length is read in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
WINDOW = 1_024
"""Sources that are held and sorted by length."""


def in_windows(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, WINDOW together."""
    left = iter(items)
    while window := list(islice(left, WINDOW)):
        yield window
