"""Types that all packages share: states, memories and losses.

A state is a tree: a tensor with the batch on dim 0, `None` for a layer without a state, or a (named) tuple of states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

State: TypeAlias = Any
"""`None`, a `Tensor` (batch first) or a tuple of states. Type checkers cannot express this for NamedTuples."""

WITHOUT_FLOAT64 = {"mps", "xpu"}
"""Devices without float64: Apple's, and most of Intel's."""


class Memory(NamedTuple):
    """What a decoder attends to: `values` (B, S, d), and `mask` (B, S), True on real positions (None: all)."""

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


def map_state(function: Callable[..., Tensor], state: State, *others: State) -> State:
    """The same tree with `function` applied to the leaves of `state`, and of `others`, which have the same form."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return function(state, *others)
    children = [map_state(function, *parts) for parts in zip(state, *others, strict=True)]
    return type(state)(*children) if hasattr(state, "_fields") else type(state)(children)


def leaves(state: State) -> Iterator[Tensor]:
    """The tensors of a state, in a fixed order."""
    if isinstance(state, Tensor):
        yield state
    elif state is not None:
        for part in state:
            yield from leaves(part)


def select_rows(state: State, rows: Tensor) -> State:
    """The state of the given rows, in their order: to reorder beams, drop finished rows, or repeat prompts.

    `rows` is a vector of row numbers, or a mask of rows.
    """
    return map_state(lambda leaf: leaf[rows], state)


def concatenate_rows(states: list[State]) -> State:
    """One state with the rows of several; the inverse of cutting a batch into pieces."""
    return map_state(lambda *parts: torch.cat(parts), *states)


def detach(state: State) -> State:
    """The same state without its history: back-propagation through time ends here."""
    return map_state(Tensor.detach, state)


def hold(mask_t: Tensor, new: State, old: State) -> State:
    """`new` in the rows where `mask_t` (B,) is True, `old` in the others."""

    def choose(new_leaf: Tensor, old_leaf: Tensor) -> Tensor:
        return torch.where(mask_t.view(-1, *[1] * (new_leaf.dim() - 1)), new_leaf, old_leaf)

    return map_state(choose, new, old)


def widest(device: torch.device) -> torch.dtype:
    """The widest floating-point type of a device: float64, or float32 where it has no float64."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exact(tensor: Tensor) -> Tensor:
    """The tensor in float64; on the CPU if its device has no float64."""
    return (tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor).double()
