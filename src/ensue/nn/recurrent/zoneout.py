"""Zoneout: in training, units of a recurrent state keep their old value at random."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.nn.draws import uniform
from ensue.nn.layer import Recurrent
from ensue.nn.taps import Taps
from ensue.types import Memory, State


class Zoneout(Recurrent):
    """Zoneout (Krueger et al. 2017) of a recurrent layer whose state is a NamedTuple with its output h, and perhaps c:

        (h̃, c̃) = layer.step(x, (h, c))
        h' = m_h ⊙ h + (1 - m_h) ⊙ h̃        c' = m_c ⊙ c + (1 - m_c) ⊙ c̃

    In training the masks m are drawn for each unit at each position; they are 1 with the probability `hidden` or
    `cell`. In evaluation they are these probabilities. As in the paper, h̃ is computed from c̃, not from c'. Other
    parts of the state are not changed. Raises `ValueError` for a layer without such a state, and for shares outside of
    0 to 1.

    To drop recurrent weights too, write `WeightDrop(Zoneout(layer, ...), p)`.
    """

    def __init__(self, layer: Recurrent, *, hidden: float, cell: float = 0.0) -> None:
        super().__init__()
        for share in (hidden, cell):
            if not 0 <= share <= 1:
                raise ValueError(f"zoneout is a share from 0 to 1, not {share}")
        if not isinstance(layer, Recurrent):
            raise ValueError(f"Zoneout needs a Recurrent layer, which {layer!r} is not")
        state = layer.init_state(1)
        shares = {name: share for name, share in (("h", hidden), ("c", cell)) if hasattr(state, name)}
        if "h" not in shares or state.h.shape != (1, layer.d_out):
            raise ValueError(f"Zoneout needs a layer whose state has its output h, which that of {layer!r} has not")
        if cell > 0 and "c" not in shares:
            raise ValueError(f"the state of {layer!r} has no cell c to keep")
        self.layer, self.shares = layer, shares
        self.d_in, self.d_out = layer.d_in, layer.d_out
        self.sizes = [layer.d_in, *(getattr(state, name).shape[1] for name in shares)]
        self.kept = Taps(*shares)
        self._given = (GivenMasks(self),)  # in a tuple, so that the layer is a part of one module and not of two

    @property
    def given_masks(self) -> GivenMasks:
        """The layer that runs in training, once the masks of a call have been drawn."""
        return self._given[0]

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.layer.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        if not self.training:
            return super().forward(x, state, mask=mask)
        by_position = x.transpose(0, 1)  # the engine reads this order without a copy
        given = torch.cat((by_position, *self._draw(by_position)), dim=-1).transpose(0, 1)
        y, state = self.given_masks(given, state, mask=mask)
        return y, state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.mixed(x_t, state, self._draw(x_t) if self.training else list(self.shares.values()))

    def mixed(self, x_t: Tensor, state: State, masks: Sequence[Tensor | float]) -> tuple[Tensor, State]:
        """One position. `masks` say how much of the old h and c is kept: (B, d) each, or one number."""
        state = self.init_state(len(x_t)) if state is None else state
        _, new = self.layer.step(x_t, state)
        for name, m in zip(self.shares, masks, strict=True):
            kept = m * getattr(state, name) + (1 - m) * getattr(new, name)
            new = new._replace(**{name: getattr(self.kept, name)(kept)})
        h: Tensor = new.h
        return h, new

    def _draw(self, x: Tensor) -> list[Tensor]:
        """The masks of h, c for the positions of `x` (..., d_in)."""
        shares = zip(self.sizes[1:], self.shares.values(), strict=True)
        rows = (x.shape[-2], *x.shape[:-2])
        return [(uniform((*rows, d), device=x.device) < share).to(x.dtype).movedim(0, -2) for d, share in shares]

    def extra_repr(self) -> str:
        return f"{self.layer!r}, hidden={self.shares['h']}, cell={self.shares.get('c', 0.0)}"


class GivenMasks(Recurrent):
    """A `Zoneout` that reads its masks from `x`, after the features: (B, T, d_in + d_h + d_c).

    It draws nothing, so it is deterministic and the engine can compile it. No gradient reaches the masks.
    """

    def __init__(self, zoneout: Zoneout) -> None:
        super().__init__()
        self.zoneout = zoneout
        self.d_in, self.d_out = sum(zoneout.sizes), zoneout.d_out

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.zoneout.init_state(batch_size, memory)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        x_t, *masks = torch.split(x_t, self.zoneout.sizes, dim=-1)
        return self.zoneout.mixed(x_t, state, [mask.detach() for mask in masks])

    def __repr__(self) -> str:
        return f"{self.zoneout!r}.given_masks"
