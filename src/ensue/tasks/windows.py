"""A stream of texts in windows, so that a file of any length is read in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def windows(
    items: Iterable[Item], num_words: Callable[[Item], int], *, most_words: int, most_items: int | None = None
) -> Iterator[list[Item]]:
    """The items in order, in lists. A list ends with the item that brings it to `most_words` words or `most_items`."""
    window: list[Item] = []
    words = 0
    for item in items:
        window.append(item)
        words += num_words(item)
        if words >= most_words or len(window) == most_items:
            yield window
            window, words = [], 0
    if window:
        yield window
