"""One vector for a sequence: its first or last state, mean, maximum or a weighted mean over real positions.

A pooling is not a layer: it maps (B, T, d_in) to (B, d_out). It can read a long sequence in segments, with a state like
a layer's: call `update` for each segment, then `result`. `forward` does this for one segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.border import guarded_result, guarded_update
from ensue.nn.layer import blank
from ensue.nn.taps import Tap
from ensue.types import State


class Pooling(nn.Module, ABC):
    """A map from sequences of `d_in` features to vectors of `d_out`. A row without real positions gives zeros.

    Wrong sizes are a `ValueError`, wrong types a `TypeError`.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # knows the module's device and type

    def __init_subclass__(cls, **options: Any) -> None:
        """Every pooling gets the checks of `ensue.nn.border`."""
        super().__init_subclass__(**options)
        for name, guarded in (("update", guarded_update), ("result", guarded_result)):
            if name in vars(cls):
                setattr(cls, name, guarded(vars(cls)[name]))

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """The state before the first segment."""

    @abstractmethod
    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> State:
        """The state after a further segment `h`; `mask` is True on its real positions, which come first."""

    @abstractmethod
    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        """The vector of all segments so far."""

    def forward(
        self, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B d_out"]:
        """The vectors of whole sequences; `mask` is True on real positions, which come first (None: all)."""
        return self.result(self.update(self.init_state(len(h)), h, mask))

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}"


class LastState(NamedTuple):
    """The state of `LastPooling`: the newest features, those of the first position, and whether a row has any."""

    last: Float[Tensor, "B d_last"]
    first: Float[Tensor, "B d_first"]
    started: Bool[Tensor, " B"]


class LastPooling(Pooling):
    """The features at the last real position.

    With `bidirectional`, for the features of a `Bidirectional` layer that concatenates: the first half at the last
    position, and the second half at the first position, where the backward layer ends.
    """

    def __init__(self, d_in: int, *, bidirectional: bool = False) -> None:
        super().__init__(d_in, d_in)
        if bidirectional and d_in % 2:
            raise ValueError(f"two directions have an even number of features together, not {d_in}")
        self.bidirectional = bidirectional
        self.d_last = d_in // 2 if bidirectional else d_in

    def init_state(self, batch_size: int) -> LastState:
        last = self.zero.new_zeros(batch_size, self.d_last)
        first = self.zero.new_zeros(batch_size, self.d_in - self.d_last)
        return LastState(last, first, torch.zeros(batch_size, dtype=torch.bool, device=self.zero.device))

    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> LastState:
        last, first, started = state
        if h.shape[1] == 0:
            return LastState(last, first, started)
        counts = _counts(h, mask)
        some = counts > 0
        index = (counts - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, self.d_last)
        newest = h[..., : self.d_last].gather(1, index).squeeze(1)
        starts = some & ~started
        return LastState(
            last=torch.where(some.unsqueeze(1), newest, last),
            first=torch.where(starts.unsqueeze(1), h[:, 0, self.d_last :], first),
            started=started | some,
        )

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return torch.cat((state.last, state.first), dim=1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, bidirectional={self.bidirectional}"


class FirstState(NamedTuple):
    """The state of `FirstPooling`: the features of the first position, and whether a row has any."""

    first: Float[Tensor, "B d"]
    started: Bool[Tensor, " B"]


class FirstPooling(Pooling):
    """The features at the first position, which is BERT's `[CLS]` where a text begins with it (Devlin et al. 2019)."""

    def __init__(self, d_in: int) -> None:
        super().__init__(d_in, d_in)

    def init_state(self, batch_size: int) -> FirstState:
        first = self.zero.new_zeros(batch_size, self.d_in)
        return FirstState(first, torch.zeros(batch_size, dtype=torch.bool, device=first.device))

    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> FirstState:
        if h.shape[1] == 0:
            return FirstState(*state)
        some = _counts(h, mask) > 0
        starts = some & ~state.started
        return FirstState(torch.where(starts.unsqueeze(1), h[:, 0], state.first), state.started | some)

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return cast("Tensor", state.first)


class MeanState(NamedTuple):
    """The state of `MeanPooling`: the sum and the number of the real positions so far."""

    total: Float[Tensor, "B d"]
    positions: Int[Tensor, " B"]


class MeanPooling(Pooling):
    """The mean over real positions."""

    def __init__(self, d_in: int) -> None:
        super().__init__(d_in, d_in)

    def init_state(self, batch_size: int) -> MeanState:
        total = self.zero.new_zeros(batch_size, self.d_in)
        return MeanState(total, torch.zeros(batch_size, dtype=torch.int64, device=total.device))

    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> MeanState:
        total = state.total + blank(h, mask).sum(1, dtype=state.total.dtype)
        return MeanState(total, state.positions + _counts(h, mask))

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return cast("Tensor", state.total / state.positions.clamp(min=1).unsqueeze(1))


class MaxState(NamedTuple):
    """The state of `MaxPooling`: the largest value of each feature so far, -inf before the first."""

    maximum: Float[Tensor, "B d"]


class MaxPooling(Pooling):
    """The maximum of each feature over real positions. Among equal values the first one gets the gradient."""

    def __init__(self, d_in: int) -> None:
        super().__init__(d_in, d_in)

    def init_state(self, batch_size: int) -> MaxState:
        return MaxState(self.zero.new_full((batch_size, self.d_in), -torch.inf))

    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> MaxState:
        if h.shape[1] == 0:
            return MaxState(*state)
        newest = (h if mask is None else h.masked_fill(~mask.unsqueeze(-1), -torch.inf)).max(1).values
        return MaxState(torch.where(newest > state.maximum, newest, state.maximum))

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return cast("Tensor", state.maximum.masked_fill(state.maximum == -torch.inf, 0.0))


class AttentionState(NamedTuple):
    """The state of `AttentionPooling`: the largest score so far, and the sums of the softmax relative to it."""

    maximum: Float[Tensor, "B 1"]
    denominator: Float[Tensor, "B 1"]
    total: Float[Tensor, "B d"]


class AttentionPooling(Pooling):
    """A mean with learned weights (Yang et al. 2016, equations 5 to 7):

        u_t = tanh(W h_t + b)      a_t = softmax_t(v · u_t)      result = Σ_t a_t h_t

    The softmax is over all segments: its state is the largest score so far and the sums relative to it.
    """

    def __init__(self, d_in: int, *, d_attention: int | None = None) -> None:
        super().__init__(d_in, d_in)
        self.d_attention = d_in if d_attention is None else d_attention
        self.linear = nn.Linear(d_in, self.d_attention)
        self.vector = nn.Linear(self.d_attention, 1, bias=False)
        self.scores = Tap()

    def init_state(self, batch_size: int) -> AttentionState:
        zeros = self.zero.new_zeros(batch_size, 1)
        return AttentionState(zeros - torch.inf, zeros, zeros.expand(-1, self.d_in))

    def update(
        self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None
    ) -> AttentionState:
        if h.shape[1] == 0:
            return AttentionState(*state)
        h = blank(h, mask)
        scores = self.vector(torch.tanh(self.linear(h))).squeeze(2).to(state.maximum.dtype)
        scores = self.scores(scores if mask is None else scores.masked_fill(~mask, -torch.inf))
        # A constant that cancels, so it needs no gradient; where nothing has been seen yet any number will do.
        maximum = torch.maximum(state.maximum, scores.detach().amax(1, keepdim=True))
        origin = maximum.masked_fill(maximum == -torch.inf, 0.0)
        kept, weights = torch.exp(state.maximum - origin), torch.exp(scores - origin)
        return AttentionState(
            maximum=maximum,
            denominator=kept * state.denominator + weights.sum(1, keepdim=True),
            total=kept * state.total + (weights.unsqueeze(1) @ h.to(weights.dtype)).squeeze(1),
        )

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return cast("Tensor", state.total / state.denominator.masked_fill(state.denominator == 0, 1.0))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, d_attention={self.d_attention}"


class Poolings(Pooling):
    """Several poolings of the same features, concatenated. The state is the tuple of their states."""

    def __init__(self, poolings: Iterable[Pooling]) -> None:
        parts = list(poolings)
        if len({part.d_in for part in parts}) != 1:
            raise ValueError(f"poolings side by side read the same number of features; found {parts!r}")
        super().__init__(parts[0].d_in, sum(part.d_out for part in parts))
        self.poolings = nn.ModuleList(parts)

    def __iter__(self) -> Iterator[Pooling]:
        return cast("Iterator[Pooling]", iter(self.poolings))

    def init_state(self, batch_size: int) -> State:
        return tuple(pooling.init_state(batch_size) for pooling in self)

    def update(self, state: State, h: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> State:
        return tuple(pooling.update(before, h, mask) for pooling, before in zip(self, state, strict=True))

    def result(self, state: State) -> Float[Tensor, "B d_out"]:
        return torch.cat([pooling.result(part) for pooling, part in zip(self, state, strict=True)], dim=1)


def _counts(h: Tensor, mask: Tensor | None) -> Tensor:
    """The number of real positions of each row of `h` (B, T, d)."""
    return torch.full((len(h),), h.shape[1], device=h.device) if mask is None else mask.sum(1)
