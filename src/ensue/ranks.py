"""The process group of a run: sums, shards and values that its ranks exchange.

With a single process every method returns its argument.
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
"""The shards of each batch of an exact run, for any number of processes."""


class Ranks:
    """A process, by its `rank`, among `size` of them; here the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """The processes on this machine."""
    exact: bool = False
    """Whether sums do not depend on the number of processes."""

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone writes files and messages."""
        return self.rank == 0

    @property
    def num_shards(self) -> int:
        """The number of shards of data that may be cut anywhere."""
        return SHARDS if self.exact else self.size

    def shard(self, size: int) -> slice:
        """The rows of this rank, of `size` rows."""
        return shard(size, self.rank, self.size)

    def adding(self, *, exact: bool) -> Self:
        """Return a copy of the group with order-independent sums on or off."""
        group = copy(self)
        group.exact = exact
        return group

    def in_turn(self, function: Callable[[], Result]) -> Result:
        """The result of `function`, which one process of each machine calls before the others, to fill the cache."""
        return function()

    def end_turn(self) -> None:
        """Release the other local ranks that wait `in_turn`: the shared files exist."""

    def add(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in each of them."""
        return numbers

    def whole(self, tensor: Tensor) -> Tensor:
        """The full tensor; all ranks call it if it is sharded."""
        return tensor

    def take(self, tensor: Tensor, whole: Tensor) -> None:
        """Copy the shard of this rank of the full tensor `whole` into `tensor`."""
        tensor.copy_(whole)

    def gathered(self, found: Any) -> list[Any]:
        """The values of all processes, by rank."""
        return [found]

    def first_to_others(self, found: Any) -> Any:
        """The value of the first process."""
        return found


def shard(size: int, index: int, count: int) -> slice:
    """The shard number `index` of `count` contiguous shards of `size` rows, whose lengths differ by one at most."""
    return slice(size * index // count, size * (index + 1) // count)


_ranks: ContextVar[Ranks] = ContextVar("ranks", default=Ranks())  # noqa: B039  # it does not change


def ranks() -> Ranks:
    """The process group of this context."""
    return _ranks.get()


def is_in_parts(tensor: Tensor) -> bool:
    """Whether a tensor is sharded: whether it is a DTensor."""
    return hasattr(tensor, "to_local")


def local_part(tensor: Tensor) -> Tensor:
    """The shard of this rank of a tensor that may be sharded; it shares the memory."""
    return tensor.to_local() if is_in_parts(tensor) else tensor  # type: ignore[attr-defined, no-any-return]


@contextmanager
def together(group: Ranks) -> Iterator[Ranks]:
    """Make `group` the process group of a `with` block."""
    token = _ranks.set(group)
    try:
        yield group
    finally:
        _ranks.reset(token)


def spread(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` with the items sharded over the ranks: each rank has all results, in the order of the items.

    All ranks call it with the same items. Results are numbers, texts, None, tensors, arrays, and lists,
    tuples and dicts of these.
    """
    group = ranks()
    if group.size == 1:
        for item in items:
            check_interrupted()
            yield function(item)
        return
    mine = [function(item) for number, item in enumerate(items) if number % group.size == group.rank]
    by_rank: Sequence[list[Result]] = group.gathered(mine)
    for number in range(sum(map(len, by_rank))):
        place, rank = divmod(number, group.size)
        yield by_rank[rank][place]
