"""Zoneout: in training, units of a recurrent state keep their old value at random."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ensue.nn.draws import uniform
from ensue.nn.layer import Recurrent
from ensue.nn.taps import Taps
from ensue.types import Inputs, Mask, Memory, Outputs, State


class Zoneout(Recurrent):
    """Zoneout (Krueger et al. 2017) for a recurrent layer whose state is a NamedTuple with the output h and maybe a
    cell c:

        (h̃, c̃) = layer.step(x, (h, c))
        h' = m_h ⊙ h + (1 - m_h) ⊙ h̃        c' = m_c ⊙ c + (1 - m_c) ⊙ c̃

    In training the masks m are drawn for each unit at each position: 1 with the probability `hidden` or `cell`, else 0.
    In evaluation, the masks are the probabilities. As in the paper, h̃ is computed from c̃, not from c'. Other fields of
    the state get new values. Raises ValueError for a layer with another state, and for probabilities not in 0 to 1.

    To drop recurrent weights too, use `WeightDrop(Zoneout(layer, ...), p)`.
    """

    def __init__(self, layer: Recurrent, *, hidden: float, cell: float = 0.0) -> None:
        super().__init__()
        for p in (hidden, cell):
            if not 0 <= p <= 1:
                raise ValueError(f"zoneout must be a probability from 0 to 1, found {p}")
        if not isinstance(layer, Recurrent):
            raise ValueError(f"Zoneout needs a Recurrent layer, found {layer!r}")
        state = layer.init_state(1)
        probabilities = {name: p for name, p in (("h", hidden), ("c", cell)) if hasattr(state, name)}
        if "h" not in probabilities or state.h.shape != (1, layer.d_out):
            raise ValueError(f"Zoneout needs a layer whose state has the output h, found {layer!r}")
        if cell > 0 and "c" not in probabilities:
            raise ValueError(f"the state of {layer!r} has no cell c; expected cell = 0, found {cell}")
        self.layer, self.probabilities = layer, probabilities
        self.d_in, self.d_out = layer.d_in, layer.d_out
        self.sizes = [layer.d_in, *(getattr(state, name).shape[1] for name in probabilities)]
        self.kept = Taps(*probabilities)
        self._with_masks = (ZoneoutWithMasks(self),)  # in a tuple, so that torch does not register it as a submodule

    @property
    def with_masks(self) -> "ZoneoutWithMasks":
        """The layer that runs in training and reads the masks from its input."""
        return self._with_masks[0]

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.layer.init_state(batch_size, memory)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        if not self.training:
            return super().forward(x, state, mask=mask)
        by_position = x.transpose(0, 1)  # the engine reads this order without a copy
        x_and_masks = torch.cat((by_position, *self._draw(by_position)), dim=-1).transpose(0, 1)
        y, state = self.with_masks(x_and_masks, state, mask=mask)
        return y, state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.step_with_masks(x_t, state, self._draw(x_t) if self.training else list(self.probabilities.values()))

    def step_with_masks(self, x_t: Tensor, state: State, masks: Sequence[Tensor | float]) -> tuple[Tensor, State]:
        """Compute one position. `masks` (B, d), or probabilities, are the weights of the old h and c."""
        state = self.init_state(len(x_t)) if state is None else state
        _, new = self.layer.step(x_t, state)
        for name, m in zip(self.probabilities, masks, strict=True):
            value = m * getattr(state, name) + (1 - m) * getattr(new, name)
            new = new._replace(**{name: getattr(self.kept, name)(value)})
        h: Tensor = new.h
        return h, new

    def _draw(self, x: Tensor) -> list[Tensor]:
        """Draw the masks of h and c for the positions of `x` (..., d_in)."""
        sizes = zip(self.sizes[1:], self.probabilities.values(), strict=True)
        rows = (x.shape[-2], *x.shape[:-2])
        return [(uniform((*rows, d), device=x.device) < p).to(x.dtype).movedim(0, -2) for d, p in sizes]

    def extra_repr(self) -> str:
        return f"{self.layer!r}, hidden={self.probabilities['h']}, cell={self.probabilities.get('c', 0.0)}"


class ZoneoutWithMasks(Recurrent):
    """A `Zoneout` that reads its masks from `x`, after the features: (B, T, d_in + d_h + d_c).

    The engine can compile this layer, since it is deterministic. The masks get no gradient.
    """

    def __init__(self, zoneout: Zoneout) -> None:
        super().__init__()
        self.zoneout = zoneout
        self.d_in, self.d_out = sum(zoneout.sizes), zoneout.d_out

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.zoneout.init_state(batch_size, memory)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        x_t, *masks = torch.split(x_t, self.zoneout.sizes, dim=-1)
        return self.zoneout.step_with_masks(x_t, state, [mask.detach() for mask in masks])

    def __repr__(self) -> str:
        return f"{self.zoneout!r}.with_masks"
