"""Poolings from a sequence to one vector: the first or last position, mean, maximum, or weighted mean.

A pooling is not a layer: it maps (B, T, d_in) to (B, d_out). It can read a long sequence in segments, with a state:
call `update` for each segment, then `result`. `forward` does this for one segment.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.border import guarded_result, guarded_update, unchecked
from ensue.nn.layer import mask_padding
from ensue.nn.taps import Tap
from ensue.types import Inputs, Mask, State


class Pooling(nn.Module, ABC):
    """A map from sequences of `d_in` features to vectors of `d_out` features; zeros for a row without real positions.

    Wrong sizes raise ValueError, wrong types TypeError.
    """

    def __init__(self, d_in: int) -> None:
        super().__init__()
        self.d_in = self.d_out = d_in
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # has the module's device and type

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the methods in the checks of `ensue.nn.border`."""
        super().__init_subclass__(**options)
        for name, guarded in (("update", guarded_update), ("result", guarded_result)):
            if name in vars(cls):
                setattr(cls, name, guarded(vars(cls)[name]))

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """Return the state before the first segment."""

    @abstractmethod
    def update(self, state: State, h: Inputs, mask: Mask = None) -> State:
        """Return the state after a segment `h`; `state` is None before the first. `mask` has real positions first."""

    @abstractmethod
    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        """Return the vector of all segments so far."""

    def forward(self, h: Inputs, mask: Mask = None) -> Float[Tensor, "B d_out"]:
        """Return the vectors of sequences; `mask` is True on real positions, which come first (None: all)."""
        state = self.update(None, h, mask)
        with unchecked():
            return self.result(state)

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}"


class EndsState(NamedTuple):
    """The state of `LastPooling`: the features of the last and first position, and whether a row has any position."""

    last: Float[Tensor, "B d_last"]
    first: Float[Tensor, "B d_first"]
    started: Bool[Tensor, " B"]


class LastPooling(Pooling):
    """The features at the last real position.

    `bidirectional` is for the concatenated outputs of a `Bidirectional` layer. The result then has the first half of
    the features at the last position, and the second half at the first position, where the backward layer ends.
    """

    def __init__(self, d_in: int, *, bidirectional: bool = False) -> None:
        super().__init__(d_in)
        if bidirectional and d_in % 2:
            raise ValueError(f"bidirectional pooling needs an even number of features, found {d_in}")
        self.bidirectional = bidirectional
        self.d_last = d_in // 2 if bidirectional else d_in

    def init_state(self, batch_size: int) -> EndsState:
        last = self.zero.new_zeros(batch_size, self.d_last)
        first = self.zero.new_zeros(batch_size, self.d_in - self.d_last)
        return EndsState(last, first, torch.zeros(batch_size, dtype=torch.bool, device=self.zero.device))

    def update(self, state: State, h: Inputs, mask: Mask = None) -> EndsState:
        last, first, started = state
        counts = _count_positions(h, mask)
        has_any = counts > 0
        index = (counts - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, self.d_last)
        newest = h[..., : self.d_last].gather(1, index).squeeze(1)
        starts = has_any & ~started
        last = torch.where(has_any.unsqueeze(1), newest, last)
        first = torch.where(starts.unsqueeze(1), h[:, 0, self.d_last :], first)
        return EndsState(last, first, started | has_any)

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return torch.cat((state.last, state.first), dim=1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bidirectional={self.bidirectional}"


class FirstState(NamedTuple):
    """The state of `FirstPooling`: the features of the first position, and whether a row has any position."""

    first: Float[Tensor, "B d"]
    started: Bool[Tensor, " B"]


class FirstPooling(Pooling):
    """The features at the first position, which is `[CLS]` in BERT (Devlin et al. 2019)."""

    def init_state(self, batch_size: int) -> FirstState:
        first = self.zero.new_zeros(batch_size, self.d_in)
        return FirstState(first, torch.zeros(batch_size, dtype=torch.bool, device=first.device))

    def update(self, state: State, h: Inputs, mask: Mask = None) -> FirstState:
        has_any = _count_positions(h, mask) > 0
        starts = has_any & ~state.started
        return FirstState(torch.where(starts.unsqueeze(1), h[:, 0], state.first), state.started | has_any)

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return state.first


class MeanState(NamedTuple):
    """The state of `MeanPooling`: the sum of features at real positions, and the number of these positions."""

    total: Float[Tensor, "B d"]
    positions: Int[Tensor, " B"]


class MeanPooling(Pooling):
    """The mean over real positions."""

    def init_state(self, batch_size: int) -> MeanState:
        total = self.zero.new_zeros(batch_size, self.d_in)
        return MeanState(total, torch.zeros(batch_size, dtype=torch.int64, device=total.device))

    def update(self, state: State, h: Inputs, mask: Mask = None) -> MeanState:
        total, positions = mask_padding(h, mask).sum(1, dtype=self.zero.dtype), _count_positions(h, mask)
        return MeanState(state.total + total, state.positions + positions)

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return state.total / state.positions.clamp(min=1).unsqueeze(1)


class MaxState(NamedTuple):
    """The state of `MaxPooling`: the largest value of each feature so far, initially -inf."""

    maximum: Float[Tensor, "B d"]


class MaxPooling(Pooling):
    """The maximum of each feature over real positions. The first of equal values gets the gradient."""

    def init_state(self, batch_size: int) -> MaxState:
        return MaxState(self.zero.new_full((batch_size, self.d_in), -torch.inf))

    def update(self, state: State, h: Inputs, mask: Mask = None) -> MaxState:
        h = h if mask is None else h.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        newest = h.max(1).values.to(self.zero.dtype)
        return MaxState(torch.where(newest > state.maximum, newest, state.maximum))

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return state.maximum.masked_fill(state.maximum == -torch.inf, 0.0)


class AttentionState(NamedTuple):
    """The state of `AttentionPooling`: the maximum score so far, and the softmax's sums, divided by exp(maximum)."""

    maximum: Float[Tensor, "B 1"]
    denominator: Float[Tensor, "B 1"]
    total: Float[Tensor, "B d"]


class AttentionPooling(Pooling):
    """A mean with learned weights (Yang et al. 2016, equations 5 to 7):

        u_t = tanh(W h_t + b)      a_t = softmax_t(v · u_t)      result = Σ_t a_t h_t

    The softmax is over all segments.
    """

    def __init__(self, d_in: int, *, d_attention: int | None = None) -> None:
        super().__init__(d_in)
        self.d_attention = d_in if d_attention is None else d_attention
        self.linear = nn.Linear(d_in, self.d_attention)
        self.vector = nn.Linear(self.d_attention, 1, bias=False)
        self.scores = Tap()

    def init_state(self, batch_size: int) -> AttentionState:
        zeros = self.zero.new_zeros(batch_size, 1)
        return AttentionState(zeros - torch.inf, zeros, zeros.expand(-1, self.d_in))

    def update(self, state: State, h: Inputs, mask: Mask = None) -> AttentionState:
        h = mask_padding(h, mask)
        scores = self.vector(torch.tanh(self.linear(h))).squeeze(2).to(state.maximum.dtype)
        scores = self.scores(scores if mask is None else scores.masked_fill(~mask, -torch.inf))
        # The maximum cancels in the result, so it needs no gradient; -inf would make the differences NaN.
        maximum = torch.maximum(state.maximum, scores.detach().amax(1, keepdim=True))
        origin = maximum.masked_fill(maximum == -torch.inf, 0.0)
        decay, weights = torch.exp(state.maximum - origin), torch.exp(scores - origin)
        denominator = decay * state.denominator + weights.sum(1, keepdim=True)
        total = decay * state.total + (weights.unsqueeze(1) @ h.to(weights.dtype)).squeeze(1)
        return AttentionState(maximum, denominator, total)

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return state.total / state.denominator.masked_fill(state.denominator == 0, 1.0)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_attention={self.d_attention}"


class Poolings(Pooling):
    """Several poolings of the same features, with concatenated results. The state is the tuple of all states."""

    def __init__(self, poolings: Iterable[Pooling]) -> None:
        poolings = list(poolings)
        if len({pooling.d_in for pooling in poolings}) != 1:
            raise ValueError(f"concatenated poolings must read the same number of features; found {poolings!r}")
        super().__init__(poolings[0].d_in)
        self.d_out = sum(pooling.d_out for pooling in poolings)
        self.poolings = nn.ModuleList(poolings)

    def __iter__(self) -> Iterator[Pooling]:
        return cast("Iterator[Pooling]", iter(self.poolings))

    def init_state(self, batch_size: int) -> State:
        return tuple(pooling.init_state(batch_size) for pooling in self)

    def update(self, state: State, h: Inputs, mask: Mask = None) -> State:
        return tuple(pooling.update(before, h, mask) for pooling, before in zip(self, state, strict=True))

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return torch.cat([pooling.result(inner) for pooling, inner in zip(self, state, strict=True)], dim=1)


def _count_positions(h: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of real positions of each row of `h` (B, T, d)."""
    return torch.full((len(h),), h.shape[1], device=h.device) if mask is None else mask.sum(1)
