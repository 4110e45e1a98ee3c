"""Dropout: plain, with one mask for a whole sequence, and on recurrent weights."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.draws import dropped
from ensue.nn.layer import Parallel, Pointwise, SequenceLayer, Wrapper, step_of, with_weights
from ensue.types import State


def checked_share(p: float) -> float:
    """`p`; raises `ValueError` unless it is from 0 to 1."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout is a share from 0 to 1, not {p}")
    return p


class ElementDropout(nn.Module):
    """Plain dropout (Srivastava et al. 2014): in training each element is zero with the probability `p`.

    On a CPU it is faster than torch's, which draws a random number for each element: it compares 16 bits with p, so
    that four elements share one number of 64 bits. p is rounded to 1/65,536.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = checked_share(p)

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`x` with some elements zero and the others divided by 1 - p; in evaluation `x` itself."""
        return dropped(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def Dropout(p: float, *, d_in: int) -> Pointwise:
    """Plain dropout as a layer, with a mask of its own for every feature of every position."""
    return Pointwise(ElementDropout(p), d_in=d_in)


class VariationalDropout(Parallel):
    """Dropout with one mask for each row, the same at all positions of a call (Gal & Ghahramani 2016).

    In training, each call of `step` draws a mask. In evaluation the layer is the identity.
    """

    def __init__(self, p: float, *, d_in: int) -> None:
        super().__init__()
        self.p, self.d_in, self.d_out = checked_share(p), d_in, d_in

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        if not self.training or self.p == 0:
            return x, None
        return x * dropped(x.new_ones(len(x), 1, self.d_in), self.p), None

    def extra_repr(self) -> str:
        return f"p={self.p}, d_in={self.d_in}"


class WeightDrop(Wrapper):
    """Dropout on the recurrent weights of a layer, one mask for each call of `forward` (Merity et al. 2018, AWD-LSTM).

    The layer is called with dropped weights in place of its own, so it keeps its fast path. It may be any layer that
    has a parameter `weight_hidden`, or a part with one; `ValueError` otherwise. `step` drops nothing.
    """

    def __init__(self, layer: SequenceLayer, p: float) -> None:
        super().__init__(layer)
        self.dropped = [name for name, _ in layer.named_parameters() if name.split(".")[-1] == "weight_hidden"]
        if not self.dropped:
            raise ValueError(f"WeightDrop needs a layer with a parameter weight_hidden, which {layer!r} has not")
        self.p = checked_share(p)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        if not self.training or self.p == 0:
            y, state = self.layer(x, state, mask=mask)
            return y, state
        return with_weights(self.layer, self._dropped, x, state, mask)

    def _dropped(self) -> dict[str, Tensor]:
        return {name: F.dropout(self._weight(name), self.p) for name in self.dropped}

    def _weight(self, name: str) -> Tensor:
        try:
            return self.layer.get_parameter(name)
        except AttributeError:
            reason = "it was pruned or given a form of its own"
            raise ValueError(f"WeightDrop: {name} of {self.layer!r} is no parameter any more: {reason}") from None

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return step_of(self.layer, x_t, state) if self.training else self.layer.step(x_t, state)

    def extra_repr(self) -> str:
        return f"{self.layer!r}, p={self.p}"
