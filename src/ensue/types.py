"""States, memories and losses: the types that all packages share.

A state is a tree: a tensor with the batch on dim 0, `None` for a layer without a state, or a (named) tuple of states.
A constant that several rows read, such as the memory of a decoder, is `Shared`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

Mask: TypeAlias = Bool[Tensor, "B T"] | None
"""True at the real positions of each row, which come first; None: all positions are real."""
Inputs: TypeAlias = Float[Tensor, "B T d_in"]
Outputs: TypeAlias = Float[Tensor, "B T d_out"]
"""The features that a layer reads and returns."""
State: TypeAlias = Any
"""`None`, a `Tensor` (batch first) or a tuple of states. `Any`, since recursive types do not include NamedTuples."""

T = TypeVar("T")
WITHOUT_FLOAT64 = {"mps", "xpu"}
"""Types of devices without float64: Apple's GPUs, and most of Intel's GPUs."""


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the type for sums of numbers of `dtype`: float32, or `dtype` if it is wider."""
    return torch.promote_types(dtype, torch.float32)


@contextmanager
def change_temporarily(change: Callable[[T], object], value: T, before: T) -> Iterator[None]:
    """Set `value` during a `with` block, and restore the value `before` at its end."""
    try:
        change(value)
        yield
    finally:
        change(before)


class Memory(NamedTuple):
    """The memory of a decoder: `values` (B, S, d), and `mask` (B, S), True on real positions (None: all)."""

    values: Tensor
    mask: Tensor | None = None


class Loss(NamedTuple):
    """A sum of losses in nats (a scalar tensor), and its number of predictions.

    Losses can be added, so the mean does not depend on how a batch is split into micro-batches.
    """

    total: Tensor
    count: int  # type: ignore[assignment]  # the field hides tuple.count

    def __add__(self, other: "Loss") -> "Loss":  # type: ignore[override]
        return Loss(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Tensor:
        """The loss per prediction in nats, a scalar tensor."""
        return self.total / max(self.count, 1)


class SharedFields(NamedTuple):
    """The fields of `Shared`."""

    content: State
    """M texts: a tree of tensors (M, S, ...). When texts are padded later, the padding is zero."""
    rows: Tensor
    """The number of the text that each row reads, (B,) int64."""


class Shared(SharedFields):
    """Constant content of a state, shared among rows: B rows read M texts of S positions.

    Selecting, repeating or reordering rows changes only `rows`; the content is not copied.
    """

    @classmethod
    def of(cls, content: State) -> "Shared":
        """Return the initial state, in which row k reads text k."""
        first = next(leaves(content))
        return cls(content, torch.arange(len(first), device=first.device))

    @property
    def num_texts(self) -> int:
        """The number of texts, M."""
        return len(next(leaves(self.content)))

    @cached_property
    def repeats(self) -> int | None:
        """K if the first K rows read text 0, the next K rows text 1 and so on, as in beam search; else None.

        On the device "meta" row numbers have no values, and are assumed to have this order.
        """
        texts = self.num_texts
        if texts == 0 or len(self.rows) == 0 or len(self.rows) % texts:
            return 1 if texts == len(self.rows) == 0 else None
        repeats = len(self.rows) // texts
        if self.rows.is_meta:
            return repeats
        order = torch.arange(texts, device=self.rows.device).repeat_interleave(repeats)
        return repeats if torch.equal(self.rows, order) else None

    @cached_property
    def invalid_row(self) -> int | None:
        """An entry of `rows` that is not the number of a text, or None."""
        if len(self.rows) == 0:
            return None
        minimum, maximum = map(int, self.rows.aminmax())
        return minimum if minimum < 0 else maximum if maximum >= self.num_texts else None


def map_state(
    function: Callable[..., Tensor], state: State, *others: State, shared: Callable[..., Shared] | None = None
) -> State:
    """Apply `function` to each leaf of `state`, together with the same leaf of `others`, and return the results.

    `shared` is applied to each `Shared`. Without `shared`, `function` is applied to the leaves of a `Shared`, too.
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return function(state, *others)
    if shared is not None and isinstance(state, Shared):
        return shared(state, *others)
    results = [map_state(function, *items, shared=shared) for items in zip(state, *others, strict=True)]
    return _tuple_like(state, results)


def leaves(state: State) -> Iterator[Tensor]:
    """Yield the tensors of a state, in a fixed order."""
    if isinstance(state, Tensor):
        yield state
    elif state is not None:
        for item in state:
            yield from leaves(item)


def select_rows(state: State, rows: Tensor) -> State:
    """Return the state of `rows`, numbers or a mask, to reorder beams, drop finished rows or repeat prompts.

    Shared content is not copied. A `Shared` whose rows stay the same is not copied either, to reuse cached properties.
    """

    def select(old: Shared) -> Shared:
        selected = old.rows[rows]
        return old if torch.equal(selected, old.rows) else Shared(old.content, selected)

    return map_state(lambda leaf: leaf[rows], state, shared=select)


def compacted(state: State) -> State:
    """Return the state without shared texts that no row reads."""

    def compact(old: Shared) -> Shared:
        used, rows = torch.unique(old.rows, return_inverse=True)
        return old if len(used) == old.num_texts else Shared(select_rows(old.content, used), rows)

    return map_state(lambda leaf: leaf, state, shared=compact)


def concatenate_rows(states: list[State]) -> State:
    """Return one state with the rows of several states.

    Shared texts and `Growing` states are padded. Texts that all states share are not copied.
    """

    def join(*shared: Shared) -> Shared:
        content, rows = _join_texts(shared)
        return Shared(content, torch.cat(rows))

    return map_state(lambda *leaves: torch.cat(leaves), *_pad_growing(states), shared=join)


class Growing(Protocol):
    """A named tuple of tensors with an entry for each position, such as the keys and values of attention."""

    @property
    def num_positions(self) -> int:
        """The number of positions, S; 0 in an initial state."""

    def resized(self, length: int) -> Self:
        """Return the state with S = `length`, with padding added or removed on the left."""

    def num_unused(self) -> int:
        """Return the number of positions on the left that are padding in all rows."""


def narrow(state: State) -> State:
    """Return the state without positions that are padding in all of the remaining rows."""
    if hasattr(state, "num_positions"):
        return state.resized(state.num_positions - state.num_unused())
    if state is None or isinstance(state, Tensor | Shared):
        return state
    return _tuple_like(state, map(narrow, state))


def _pad_growing(states: Sequence[State]) -> Sequence[State]:
    """Return the states with each `Growing` state padded to the maximum length."""
    first = states[0]
    if hasattr(first, "num_positions"):
        longest = max(state.num_positions for state in states)
        return [state.resized(longest) for state in states]
    if first is None or isinstance(first, Tensor | Shared) or not first:
        return states
    fields = map(_pad_growing, zip(*states, strict=True))
    return [_tuple_like(first, items) for items in zip(*fields, strict=True)]


def _tuple_like(state: State, items: Iterable[State]) -> State:
    return type(state)(*items) if hasattr(state, "_fields") else type(state)(items)


def _join_texts(states: Sequence[Shared]) -> tuple[State, list[Tensor]]:
    """Return all texts as one content, and for each state the new text numbers of its rows."""
    contents = [tuple(leaves(shared.content)) for shared in states]
    if all(a is b for other in contents for a, b in zip(contents[0], other, strict=True)):
        return states[0].content, [shared.rows for shared in states]
    length = max(content[0].shape[1] for content in contents)

    def cat(*tensors: Tensor) -> Tensor:
        return torch.cat([F.pad(x, (0, 0) * (x.dim() - 2) + (0, length - x.shape[1])) for x in tensors])

    starts = accumulate((shared.num_texts for shared in states), initial=0)
    rows = [shared.rows + start for shared, start in zip(states, starts, strict=False)]
    return map_state(cat, *(shared.content for shared in states)), rows


def detach(state: State) -> State:
    """Return the state without its autograd history, to truncate back-propagation through time."""
    return copy_views(map_state(Tensor.detach, state))


def copy_views(state: State, *, with_room: bool = True) -> State:
    """Return the state with views of larger tensors replaced by copies, so that the larger tensors can be freed.

    With `with_room`, leaves may keep the free buffer of `ensue.engine.storage.appended`.
    """

    def is_owned(leaf: Tensor) -> bool:
        return (with_room and hasattr(leaf, "room")) or leaf.untyped_storage().nbytes() <= leaf.nbytes

    if all(map(is_owned, leaves(state))):
        return state
    return map_state(lambda leaf: leaf if is_owned(leaf) else leaf.clone(), state)


def hold(mask_t: Tensor, new: State, old: State) -> State:
    """Return `new` in the rows where `mask_t` (B,) is True, and `old` in the other rows."""

    def choose(new_leaf: Tensor, old_leaf: Tensor) -> Tensor:
        return torch.where(mask_t.view(-1, *[1] * (new_leaf.dim() - 1)), new_leaf, old_leaf)

    def choose_shared(*pair: Shared) -> Shared:
        content, rows = _join_texts(pair)
        return Shared(content, choose(*rows))

    return map_state(choose, new, old, shared=choose_shared)


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest floating-point type of a device: float64, or float32 if the device has no float64."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def to_float64(tensor: Tensor) -> Tensor:
    """Return the tensor in float64, on the CPU if its device has no float64."""
    return (tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor).double()
