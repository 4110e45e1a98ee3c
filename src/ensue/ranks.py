"""The processes that work on one run together: what they add up, share out and agree on.

A run in one process has no such company: everything here then gives back what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, Self, TypeVar

from torch import Tensor

from ensue.interruption import check_interrupted

Item = TypeVar("Item")
Result = TypeVar("Result")
SHARDS = 8
"""Into how many parts an exact run cuts each batch, whatever the number of its processes."""


class Ranks:
    """A process, by its `rank`, among `size` of them; here the only one.

    `pieces` is the number of parts into which to cut what may be cut anywhere. With `exact`, it is the same for any
    number of processes.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Of those on this machine."""
    exact: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    @property
    def pieces(self) -> int:
        """Into how many parts to cut what may be cut anywhere."""
        return SHARDS if self.exact else self.size

    def own(self, size: int) -> slice:
        """This process' rows of `size`."""
        return cut(size, self.rank, self.size)

    def adding(self, *, exact: bool) -> Self:
        """These processes, adding up exactly or not."""
        company = copy(self)
        company.exact = exact
        return company

    def in_turn(self, function: Callable[[], Result]) -> Result:
        """The result of `function`. On each machine one process calls it before the others, which find what it kept."""
        return function()

    def end_turn(self) -> None:
        """Lets the others of this machine begin with what is done `in_turn`, since what they share is there."""

    def add(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        return numbers

    def whole(self, tensor: Tensor) -> Tensor:
        """The tensor, which the processes may hold in parts; then all of them call it."""
        return tensor

    def take(self, tensor: Tensor, whole: Tensor) -> None:
        """Copies into a tensor what is held here of the whole."""
        tensor.copy_(whole)

    def gathered(self, found: Any) -> list[Any]:
        """The values of all processes, by rank."""
        return [found]

    def first_to_others(self, found: Any) -> Any:
        """The value of the first process."""
        return found


def cut(size: int, part: int, parts: int) -> slice:
    """One of `parts` runs of `size` rows, whose lengths differ by one at most."""
    return slice(size * part // parts, size * (part + 1) // parts)


_ranks: ContextVar[Ranks] = ContextVar("ranks", default=Ranks())  # noqa: B039  # it does not change


def ranks() -> Ranks:
    """The processes that work together here."""
    return _ranks.get()


def is_in_parts(tensor: Tensor) -> bool:
    """Whether the processes hold a tensor in parts: whether it is a DTensor."""
    return hasattr(tensor, "to_local")


def local_part(tensor: Tensor) -> Tensor:
    """The part of this process of a tensor that processes may hold in parts; it shares the memory."""
    return tensor.to_local() if is_in_parts(tensor) else tensor  # type: ignore[attr-defined, no-any-return]


@contextmanager
def together(company: Ranks) -> Iterator[Ranks]:
    """Makes these the processes that work together for the duration of a `with` block."""
    token = _ranks.set(company)
    try:
        yield company
    finally:
        _ranks.reset(token)


def spread(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map`, with the items shared out over the processes: each has all results, in the order of the items.

    All processes call it with the same items. Results are what processes can send to each other: numbers, texts, None,
    tensors, arrays, and lists, tuples and dicts of these.
    """
    company = ranks()
    if company.size == 1:
        for item in items:
            check_interrupted()
            yield function(item)
        return
    mine = [function(item) for number, item in enumerate(items) if number % company.size == company.rank]
    by_rank: Sequence[list[Result]] = company.gathered(mine)
    for number in range(sum(map(len, by_rank))):
        place, rank = divmod(number, company.size)
        yield by_rank[rank][place]
