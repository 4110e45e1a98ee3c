"""Types that all packages share: states, memories and losses.

A state is a tree: a tensor with the batch on dim 0, `None` for a layer without a state, or a (named) tuple of states.
What several rows read and no step changes, such as the text that a decoder attends to, is `Shared` by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

State: TypeAlias = Any
"""`None`, a `Tensor` (batch first) or a tuple of states. Type checkers cannot express this for NamedTuples."""

WITHOUT_FLOAT64 = {"mps", "xpu"}
"""Devices without float64: Apple's, and most of Intel's."""


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The type of sums over numbers of this type."""
    return torch.promote_types(dtype, torch.float32)


class Memory(NamedTuple):
    """The memory of a decoder: `values` (B, S, d), and `mask` (B, S), True on real positions (None: all)."""

    values: Tensor
    mask: Tensor | None = None


class Loss(NamedTuple):
    """A summed loss in nats and the number of predictions in it.

    `total` is a scalar tensor, `count` a plain number. Losses can be added, so the mean does not depend on how a batch
    is cut into parts.
    """

    total: Tensor
    count: int  # type: ignore[assignment]  # it hides tuple.count, which a loss has no use for

    def __add__(self, other: Loss) -> Loss:  # type: ignore[override]
        return Loss(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Tensor:
        """Nats per prediction, a scalar tensor."""
        return self.total / max(self.count, 1)


class SharedParts(NamedTuple):
    """The two parts of `Shared`."""

    content: State
    """M texts: a tree of tensors (M, S, ...), zeros at padding that has to be added."""
    rows: Tensor
    """(B,) int64: the text that each row reads."""


class Shared(SharedParts):
    """A part of a state that rows share and that no step changes: B rows read M texts of S positions.

    To select, repeat or reorder rows changes `rows` alone; the content is never copied for it.
    """

    @classmethod
    def of(cls, content: State) -> Shared:
        """The beginning, in which each row reads a text of its own."""
        first = next(leaves(content))
        return cls(content, torch.arange(len(first), device=first.device))

    @property
    def texts(self) -> int:
        """M."""
        return len(next(leaves(self.content)))

    @cached_property
    def repeats(self) -> int | None:
        """K if the rows read text 0 K times, then text 1 K times and so on, as beams do; None if they do not.

        Row numbers without content, on the device meta, stand for those of beams.
        """
        texts = self.texts
        if texts == 0 or len(self.rows) == 0 or len(self.rows) % texts:
            return 1 if texts == len(self.rows) == 0 else None
        repeats = len(self.rows) // texts
        if self.rows.is_meta:
            return repeats
        order = torch.arange(texts, device=self.rows.device).repeat_interleave(repeats)
        return repeats if torch.equal(self.rows, order) else None

    @cached_property
    def stray(self) -> int | None:
        """A row number to which there is no text."""
        if len(self.rows) == 0:
            return None
        least, most = map(int, self.rows.aminmax())
        return least if least < 0 else most if most >= self.texts else None


def map_state(
    function: Callable[..., Tensor], state: State, *others: State, shared: Callable[..., Shared] | None = None
) -> State:
    """The tree with `function` applied to the leaves of `state`, and of `others`, which have the same form.

    `shared` says what becomes of a `Shared` as a whole; without it, `function` is applied to its leaves too.
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return function(state, *others)
    if shared is not None and isinstance(state, Shared):
        return shared(state, *others)
    return _tuple_like(
        state, [map_state(function, *parts, shared=shared) for parts in zip(state, *others, strict=True)]
    )


def leaves(state: State) -> Iterator[Tensor]:
    """The tensors of a state, in a fixed order."""
    if isinstance(state, Tensor):
        yield state
    elif state is not None:
        for part in state:
            yield from leaves(part)


def select_rows(state: State, rows: Tensor) -> State:
    """The state of the given rows, in their order: to reorder beams, drop finished rows, or repeat prompts.

    `rows` is a vector of row numbers, or a mask of rows. What rows share is not copied; where each row reads the same
    text as before, it is the same object, which knows its order.
    """

    def choose(part: Shared) -> Shared:
        chosen = part.rows[rows]
        return part if torch.equal(chosen, part.rows) else Shared(part.content, chosen)

    return map_state(lambda leaf: leaf[rows], state, shared=choose)


def compacted(state: State) -> State:
    """The state without the shared texts that no row reads any more."""

    def compact(part: Shared) -> Shared:
        used, rows = torch.unique(part.rows, return_inverse=True)
        return part if len(used) == part.texts else Shared(select_rows(part.content, used), rows)

    return map_state(lambda leaf: leaf, state, shared=compact)


def concatenate_rows(states: list[State]) -> State:
    """One state with the rows of several; the inverse of cutting a batch into pieces.

    Shared texts of different lengths are padded, and so are parts that grow with the text (`Growing`). If all states
    share the same texts, these are not copied.
    """

    def join(*parts: Shared) -> Shared:
        content, rows = _joined(parts)
        return Shared(content, torch.cat(rows))

    return map_state(lambda *parts: torch.cat(parts), *_of_one_length(states), shared=join)


class Growing(Protocol):
    """A part of a state that has something of each position, such as keys and values. It is a named tuple."""

    @property
    def grows(self) -> int:
        """The number of positions, S; 0 at the beginning."""

    def resized(self, length: int) -> Self:
        """This state with S = `length`: positions that are not real are added or left out on the left."""

    def unused(self) -> int:
        """How many positions on the left are real in no row."""


def narrowed(state: State) -> State:
    """The state without positions that are real in no row, after rows have left."""
    if _grows(state):
        return state.resized(state.grows - state.unused())
    if state is None or isinstance(state, Tensor | Shared):
        return state
    return _tuple_like(state, map(narrowed, state))


def _of_one_length(states: Sequence[State]) -> Sequence[State]:
    """The states, with their growing parts padded to the longest."""
    first = states[0]
    if _grows(first):
        longest = max(state.grows for state in states)
        return [state.resized(longest) for state in states]
    if first is None or isinstance(first, Tensor | Shared) or not first:
        return states
    parts = map(_of_one_length, zip(*states, strict=True))
    return [_tuple_like(first, of_state) for of_state in zip(*parts, strict=True)]


def _grows(state: State) -> bool:
    return hasattr(state, "grows")


def _tuple_like(state: State, parts: Iterable[State]) -> State:
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)


def _joined(parts: Sequence[Shared]) -> tuple[State, list[Tensor]]:
    """The texts of all parts as one content, and the rows of each part in it."""
    contents = [tuple(leaves(part.content)) for part in parts]
    if all(a is b for other in contents for a, b in zip(contents[0], other, strict=True)):
        return parts[0].content, [part.rows for part in parts]
    longest = max(content[0].shape[1] for content in contents)

    def cat(*several: Tensor) -> Tensor:
        return torch.cat([F.pad(leaf, (0, 0) * (leaf.dim() - 2) + (0, longest - leaf.shape[1])) for leaf in several])

    firsts = accumulate((part.texts for part in parts), initial=0)
    rows = [part.rows + first for part, first in zip(parts, firsts, strict=False)]
    return map_state(cat, *(part.content for part in parts)), rows


def detach(state: State) -> State:
    """The state without its history: back-propagation through time ends here."""
    return owned(map_state(Tensor.detach, state))


def owned(state: State, *, with_room: bool = True) -> State:
    """The state, in which no leaf keeps more memory than its own numbers, as a part of a sequence would.

    With `with_room` it keeps the free room that `ensue.engine.storage.appended` has left behind it.
    """

    def is_owned(leaf: Tensor) -> bool:
        return (with_room and hasattr(leaf, "room")) or leaf.untyped_storage().nbytes() <= leaf.nbytes

    if all(map(is_owned, leaves(state))):
        return state
    return map_state(lambda leaf: leaf if is_owned(leaf) else leaf.clone(), state)


def hold(mask_t: Tensor, new: State, old: State) -> State:
    """`new` in the rows where `mask_t` (B,) is True, `old` in the others."""

    def choose(new_leaf: Tensor, old_leaf: Tensor) -> Tensor:
        return torch.where(mask_t.view(-1, *[1] * (new_leaf.dim() - 1)), new_leaf, old_leaf)

    def choose_shared(*parts: Shared) -> Shared:
        content, rows = _joined(parts)
        return Shared(content, choose(*rows))

    return map_state(choose, new, old, shared=choose_shared)


def widest(device: torch.device) -> torch.dtype:
    """The widest floating-point type of a device: float64, or float32 where it has no float64."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exact(tensor: Tensor) -> Tensor:
    """The tensor in float64; on the CPU if its device has no float64."""
    return (tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor).double()
