"""The values that every floor passes around: states, memories and losses.

A state is a tree: a tensor with the batch on dim 0, `None` for a layer without one, or a (named) tuple of states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

State: TypeAlias = Any
"""`None`, a `Tensor` (batch first) or a tuple of states: recursive, which type checkers cannot say of NamedTuples."""

WITHOUT_FLOAT64 = {"mps", "xpu"}
"""Devices that have no float64: Apple's, and Intel's but for the largest."""


class Memory(NamedTuple):
    """What a decoder attends to: `values` (B, S, d) and `mask` (B, S), True on real positions, or None for all."""

    values: Tensor
    mask: Tensor | None = None


class Loss(NamedTuple):
    """A summed loss in nats and the number of predictions in it; it is divided only when it is printed.

    `total` is a scalar tensor, `count` a plain number. Losses add, so shards and micro-batches cannot change the mean.
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
    """Apply `function` to the leaves of `state` (and of trees of the same shape), keeping the tree."""
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
    """The state of the named rows: reorders beams, drops finished rows, repeats prompts.

    `rows` is a vector of row numbers (or a mask of rows); the result has one row for each.
    """
    return map_state(lambda leaf: leaf[rows], state)


def concatenate_rows(states: list[State]) -> State:
    """One state out of several, their rows below each other; the inverse of cutting a batch in pieces."""
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
    """What sums are best computed in there: float64, or float32 where the device has no more."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def exact(tensor: Tensor) -> Tensor:
    """The numbers in float64, on the CPU where their device has none."""
    return (tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor).double()
