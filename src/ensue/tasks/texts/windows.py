"""Windows over texts that are longer than a model reads at once, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ensue.interruption import check_interrupted

ItemT = TypeVar("ItemT")


class TextWindow(NamedTuple):
    """The tokens [begin, end) of a text, read together; what is found for [first, last) is kept."""

    text: int
    begin: int
    end: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of tokens, without those that frame them."""
        return self.end - self.begin


def text_windows(text: int, size: int, most: int, *, is_causal: bool = False) -> list[TextWindow]:
    """Windows of at most `most` tokens over a text of `size`, which overlap by half. Each token is kept where it is
    farthest from both edges, or if `is_causal` farthest from the beginning.
    """
    begins = list(range(0, max(1, size - most), max(1, most // 2)))
    if begins[-1] + most < size:
        begins.append(size - most)
    edges = [left + most if is_causal else (left + most + right) // 2 for left, right in pairwise(begins)]
    bounds = [0, *edges, size]
    return [
        TextWindow(text, begin, min(begin + most, size), *bounds[place : place + 2])
        for place, begin in enumerate(begins)
    ]


def batches_by_length(items: Sequence[ItemT], lengths: Sequence[int], most: int) -> Iterator[list[ItemT]]:
    """The items in batches of similar length, of at most `most` tokens, padding included; the longest come first."""
    order = sorted(range(len(items)), key=lambda place: lengths[place])
    while order:
        check_interrupted()
        size = max(1, most // lengths[order[-1]])
        chosen, order = order[-size:], order[:-size]
        yield [items[place] for place in chosen]
