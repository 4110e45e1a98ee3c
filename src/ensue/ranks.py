"""The process group of a run, with its collective operations, and the sharding of data over its ranks.

With a single process each collective operation returns its argument, and `all_gather` a list with it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from copy import copy
from typing import Any, Self, TypeVar

from torch import Tensor

from ensue.interruption import check_interrupted
from ensue.types import change_temporarily

Item = TypeVar("Item")
Result = TypeVar("Result")
NUM_SHARDS = 8
"""The number of shards of each batch in an exact run. It does not depend on the number of ranks."""


class ProcessGroup:
    """A process group with a single rank, and the interface of larger groups."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """The number of ranks on this machine."""
    is_first: bool = True
    """Whether this is rank 0. Only rank 0 writes files and messages."""
    exact: bool = False
    """Whether sums do not depend on the number of ranks."""

    @property
    def num_shards(self) -> int:
        """The number of shards of each batch."""
        return NUM_SHARDS if self.exact else self.size

    def shard(self, size: int) -> slice:
        """Return the rows of this rank among `size` rows."""
        return shard(size, self.rank, self.size)

    def with_exact_sums(self, *, exact: bool) -> Self:
        """Return a copy of the group with order-independent sums on or off."""
        group = copy(self)
        group.exact = exact
        return group

    def first_locally(self, function: Callable[[], Result]) -> Result:
        """Call `function` on the first rank of each machine, which fills the cache, then on the other local ranks."""
        return function()

    def release_local_ranks(self) -> None:
        """Let the other local ranks start before the function of `first_locally` returns, since the cache is filled."""

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """Return the sum of the tensors of all ranks; the argument may be overwritten."""
        return numbers

    def full_tensor(self, tensor: Tensor) -> Tensor:
        """Return the full tensor. All ranks must call this method if the tensor is sharded."""
        return tensor

    def copy_shard(self, tensor: Tensor, full: Tensor) -> None:
        """Copy this rank's shard of the tensor `full` into `tensor`."""
        tensor.copy_(full)

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, ordered by rank."""
        return [value]

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0."""
        return value


def shard(size: int, index: int, count: int) -> slice:
    """Return shard number `index` of `count` contiguous shards of `size` rows. Shard sizes differ by at most one."""
    return slice(size * index // count, size * (index + 1) // count)


_group: ContextVar[ProcessGroup] = ContextVar("group", default=ProcessGroup())  # noqa: B039  # the default is immutable


def process_group() -> ProcessGroup:
    """Return the process group of this context."""
    return _group.get()


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor."""
    return hasattr(tensor, "to_local")


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor, without a copy. A tensor that is not sharded is returned unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def use_process_group(group: ProcessGroup) -> AbstractContextManager[None]:
    """Make `group` the process group of a `with` block."""
    return change_temporarily(_group.set, group, _group.get())


def sharded_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply a function to each item, sharded over the ranks, and yield all results in order, on every rank.

    All ranks must pass the same items. Results are numbers, strings, None, tensors, arrays, or collections of these.
    """
    group = process_group()
    if group.size == 1:
        for item in items:
            check_interrupted()
            yield function(item)
        return
    local = [function(item) for number, item in enumerate(items) if number % group.size == group.rank]
    by_rank = group.all_gather(local)
    for index in range(sum(map(len, by_rank))):
        yield by_rank[index % group.size][index // group.size]
