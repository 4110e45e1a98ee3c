"""Encoder and decoder without attention: one vector of the memory starts a decoder, and stands beside its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.layer import SequenceLayer
from ensue.nn.pooling import LastPooling, MeanPooling, Pooling
from ensue.types import Memory, State, map_state


class Summarized(SequenceLayer):
    """A layer around another that reads the summary c of a memory: the features at its last position, or their mean.

    `bidirectional` is for the memory of a `Bidirectional` encoder, whose halves end at different ends. With `mean` c is
    the mean of all positions. Without a memory c is zero.
    """

    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False, mean: bool = False) -> None:
        super().__init__()
        if layer.d_memory not in (None, d_memory):
            raise ValueError(f"{layer!r} attends to a memory of {layer.d_memory} features, not {d_memory}")
        self.layer, self.d_memory = layer, d_memory
        self.d_in, self.d_out, self.is_causal = layer.d_in, layer.d_out, layer.is_causal
        self.bidirectional = bidirectional
        self.pooling: Pooling = MeanPooling(d_memory) if mean else LastPooling(d_memory, bidirectional=bidirectional)

    def summary(self, batch_size: int, memory: Memory | None) -> Float[Tensor, "B d_memory"]:
        """c."""
        if memory is None:
            nothing: Tensor = self.pooling.result(self.pooling.init_state(batch_size))
            return nothing
        c: Tensor = self.pooling(memory.values, memory.mask)
        return c

    def extra_repr(self) -> str:
        how = "mean=True" if isinstance(self.pooling, MeanPooling) else f"bidirectional={self.bidirectional}"
        return f"{self.layer!r}, d_memory={self.d_memory}, {how}"


class FromContext(Summarized):
    """A recurrent layer that begins with the summary c of a memory: each part of its state is tanh(W c + b) (Cho et al.
    2014; Bahdanau et al. 2015; of the mean, Xu et al. 2015).

    Raises `ValueError` for a layer whose state has no features.
    """

    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False, mean: bool = False) -> None:
        super().__init__(layer, d_memory, bidirectional=bidirectional, mean=mean)
        widths: list[int] = []

        def noted(leaf: Tensor) -> Tensor:
            widths.append(leaf.shape[1])
            return leaf

        self._changed(layer.init_state(1), noted)
        if not widths:
            raise ValueError(f"the state of {layer!r} has no features to begin with")
        self.starts = nn.ModuleList(nn.Linear(d_memory, width) for width in widths)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        c, starts = self.summary(batch_size, memory), iter(self.starts)

        def begun(leaf: Tensor) -> Tensor:
            return torch.tanh(next(starts)(c)).to(leaf.dtype)  # autocast has another type

        return self._changed(self.layer.init_state(batch_size, memory), begun)

    @staticmethod
    def _changed(state: State, change: Callable[[Tensor], Tensor]) -> State:
        """The state with other features; what counts positions or is shared stays."""
        return map_state(
            lambda leaf: change(leaf) if leaf.dim() == 2 and leaf.is_floating_point() else leaf,
            state,
            shared=lambda part: part,
        )

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        y, state = self.layer(x, self.init_state(len(x)) if state is None else state, mask=mask)
        return y, state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.layer.step(x_t, self.init_state(len(x_t)) if state is None else state)


class ContextState(NamedTuple):
    """The summary of the memory, and the state of the layer that reads it."""

    context: Float[Tensor, "B d_memory"]
    inner: State


class WithContext(Summarized):
    """A layer that reads the summary c of a memory beside its input, at every position: `layer([x_t; c])` (SLP ch. 9).

    Raises `ValueError` if the layer has no room for x beside c.
    """

    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False) -> None:
        super().__init__(layer, d_memory, bidirectional=bidirectional)
        if layer.d_in <= d_memory:
            raise ValueError(f"{layer!r} has no room for x beside {d_memory} features of the memory")
        self.d_in = layer.d_in - d_memory

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ContextState:
        return ContextState(self.summary(batch_size, memory), self.layer.init_state(batch_size, memory))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], ContextState]:
        c, inner = self.init_state(len(x)) if state is None else state
        y, inner = self.layer(torch.cat((x, c.unsqueeze(1).expand(-1, x.shape[1], -1)), dim=-1), inner, mask=mask)
        return y, ContextState(c, inner)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ContextState]:
        c, inner = self.init_state(len(x_t)) if state is None else state
        y_t, inner = self.layer.step(torch.cat((x_t, c), dim=-1), inner)
        return y_t, ContextState(c, inner)
