"""Dropout layers: on single elements, with the same mask at all positions of a sequence, and on recurrent weights."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.draws import ElementDropout, apply_dropout, check_probability
from ensue.nn.layer import Parallel, Pointwise, SequenceLayer, Wrapper, call_with_weights, step_with_lock
from ensue.types import Inputs, Mask, Outputs, State


def Dropout(p: float, *, d_in: int) -> Pointwise:
    """Return plain dropout as a layer, with an independent mask for every feature of every position."""
    return Pointwise(ElementDropout(p), d_in=d_in)


class VariationalDropout(Parallel):
    """Dropout with one mask for each row, the same at all positions of a call (Gal & Ghahramani 2016).

    In training, each call of `step` draws a mask. In evaluation, the layer is the identity.
    """

    repr_arguments = ("p", "d_in")

    def __init__(self, p: float, *, d_in: int) -> None:
        super().__init__()
        self.p, self.d_in, self.d_out = check_probability(p), d_in, d_in

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        if not self.training or self.p == 0:
            return x, None
        return x * apply_dropout(x.new_ones(len(x), 1, self.d_in), self.p), None


class WeightDrop(Wrapper):
    """Dropout on the recurrent weights of a layer, one mask for each call of `forward` (Merity et al. 2018, AWD-LSTM).

    The layer runs with masked weights, on its usual fast path. `step` does not drop weights. Raises ValueError unless
    the layer or a submodule has a parameter `weight_hidden`.
    """

    def __init__(self, layer: SequenceLayer, p: float) -> None:
        super().__init__(layer)
        self.dropped = [name for name, _ in layer.named_parameters() if name.split(".")[-1] == "weight_hidden"]
        if not self.dropped:
            raise ValueError(f"WeightDrop needs a layer with a parameter weight_hidden; {layer!r} has none")
        self.p = check_probability(p)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        if not self.training or self.p == 0:
            return self.layer(x, state, mask=mask)
        return call_with_weights(self.layer, self._draw_weights, x, state, mask)

    def _draw_weights(self) -> dict[str, Tensor]:
        return {name: F.dropout(self._recurrent_weight(name), self.p) for name in self.dropped}

    def _recurrent_weight(self, name: str) -> Tensor:
        try:
            return self.layer.get_parameter(name)
        except AttributeError:
            reason = "was pruned or parametrized, and is no longer a parameter"
            raise ValueError(f"WeightDrop: {name} of {self.layer!r} {reason}") from None

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return step_with_lock(self.layer, x_t, state) if self.training else self.layer.step(x_t, state)

    def extra_repr(self) -> str:
        return f"{self.layer!r}, p={self.p}"
