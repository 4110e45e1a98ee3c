"""Encoder-decoders without attention: a summary vector of the memory is the initial state or an input of a decoder."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import SequenceLayer, Wrapper
from ensue.nn.pooling import LastPooling, MeanPooling, Pooling
from ensue.types import Inputs, Mask, Memory, Outputs, State, map_state


class Summarized(Wrapper):
    """A wrapped layer with the summary c of a memory: the features of the memory at its last position.

    `bidirectional` is for the memory of a `Bidirectional` encoder: the second half of c then has the features at the
    first position. With `mean`, c is the mean over all positions. Without a memory, c is zero.
    """

    @abstractmethod
    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False, mean: bool = False) -> None:
        super().__init__(layer)
        if layer.d_memory not in (None, d_memory):
            raise ValueError(f"d_memory must be {layer.d_memory}, as in {layer!r}; found {d_memory}")
        self.d_memory, self.bidirectional = d_memory, bidirectional
        self.pooling: Pooling = MeanPooling(d_memory) if mean else LastPooling(d_memory, bidirectional=bidirectional)

    def summary(self, batch_size: int, memory: Memory | None) -> Float[Tensor, "B d_memory"]:
        """Return the summary c of a memory."""
        if memory is None:
            return self.pooling.result(self.pooling.init_state(batch_size))
        return self.pooling(memory.values, memory.mask)

    def extra_repr(self) -> str:
        how = "mean=True" if isinstance(self.pooling, MeanPooling) else f"bidirectional={self.bidirectional}"
        return f"{self.layer!r}, d_memory={self.d_memory}, {how}"


class FromContext(Summarized):
    """A recurrent layer with the initial state tanh(W c + b), where c is the summary of a memory (Cho et al. 2014;
    Bahdanau et al. 2015; the mean, Xu et al. 2015). Raises ValueError for a layer whose state has no features.
    """

    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False, mean: bool = False) -> None:
        super().__init__(layer, d_memory, bidirectional=bidirectional, mean=mean)
        widths: list[int] = []

        def record(leaf: Tensor) -> Tensor:
            widths.append(leaf.shape[1])
            return leaf

        self._map_features(layer.init_state(1), record)
        if not widths:
            raise ValueError(f"the state of {layer!r} has no features that a memory could initialize")
        self.starts = nn.ModuleList(nn.Linear(d_memory, width) for width in widths)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        c, starts = self.summary(batch_size, memory), iter(self.starts)

        def initialize(leaf: Tensor) -> Tensor:
            return torch.tanh(next(starts)(c)).to(leaf.dtype)  # a product under autocast has another type

        return self._map_features(self.layer.init_state(batch_size, memory), initialize)

    @staticmethod
    def _map_features(state: State, change: Callable[[Tensor], Tensor]) -> State:
        """Apply `change` to the features (B, d) in a state. Counts of positions and shared content do not change."""
        return map_state(
            lambda leaf: change(leaf) if leaf.dim() == 2 and leaf.is_floating_point() else leaf,
            state,
            shared=lambda shared: shared,
        )

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        y, state = self.layer(x, self.init_state(len(x)) if state is None else state, mask=mask)
        return y, state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.layer.step(x_t, self.init_state(len(x_t)) if state is None else state)


class ContextState(NamedTuple):
    """The summary of the memory, and the state of the layer."""

    context: Float[Tensor, "B d_memory"]
    inner: State


class WithContext(Summarized):
    """A layer that reads the summary c of a memory at every position: `layer([x_t; c])` (Jurafsky & Martin, ch. 9).

    Raises ValueError unless the layer reads more features than c has.
    """

    def __init__(self, layer: SequenceLayer, d_memory: int, *, bidirectional: bool = False) -> None:
        super().__init__(layer, d_memory, bidirectional=bidirectional)
        if layer.d_in <= d_memory:
            raise ValueError(f"d_in of {layer!r} must exceed the {d_memory} features of the memory")
        self.d_in = layer.d_in - d_memory

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ContextState:
        return ContextState(self.summary(batch_size, memory), self.layer.init_state(batch_size, memory))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, ContextState]:
        c, inner = self.init_state(len(x)) if state is None else state
        y, inner = self.layer(torch.cat((x, c.unsqueeze(1).expand(-1, x.shape[1], -1)), dim=-1), inner, mask=mask)
        return y, ContextState(c, inner)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ContextState]:
        c, inner = self.init_state(len(x_t)) if state is None else state
        y_t, inner = self.layer.step(torch.cat((x_t, c), dim=-1), inner)
        return y_t, ContextState(c, inner)
