"""Layers made of layers: stacks, residual connections, bypassed features, and both directions."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.border import ANY, expect
from ensue.nn.layer import Parallel, SequenceLayer, Wrapper
from ensue.types import Inputs, Mask, Memory, Outputs, State, leaves

Merge = Literal["concatenate", "sum", "product", "mean"]
MERGES: dict[Merge, Callable[[Tensor, Tensor], Tensor]] = {
    "concatenate": lambda a, b: torch.cat((a, b), dim=-1), "sum": torch.add, "product": torch.mul,
    "mean": lambda a, b: (a + b) / 2,
}  # fmt: skip


class Stack(SequenceLayer):
    """A stack of layers: the output of a layer is the input of the next.

    The state is the tuple of the layers' states. A stack is causal if all its layers are; a stack that looks ahead and
    reads no memory takes no initial state.

    Raises:
        ValueError: There is no layer, or the sizes of adjacent layers, or of two layers' memories, differ.
    """

    def __init__(self, layers: Iterable[SequenceLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if not len(self.layers):
            raise ValueError("a Stack needs at least one layer")
        for below, above in zip(self, list(self)[1:], strict=False):
            if below.d_out != above.d_in:
                raise ValueError(f"{above!r} cannot read the {below.d_out} features of {below!r}")
        self.d_in, self.d_out = next(iter(self)).d_in, list(self)[-1].d_out
        self.is_causal = all(layer.is_causal for layer in self)
        memories = {layer.d_memory for layer in self if layer.d_memory is not None}
        if len(memories) > 1:
            raise ValueError(f"layers of one Stack must attend to one memory; found sizes {sorted(memories)}")
        self.d_memory = next(iter(memories), None)

    def __iter__(self) -> Iterator[SequenceLayer]:
        return cast("Iterator[SequenceLayer]", iter(self.layers))

    def __len__(self) -> int:
        return len(self.layers)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return tuple(layer.init_state(batch_size, memory) for layer in self)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        if not self.is_causal and self.d_memory is None and any(True for _ in leaves(state)):
            raise TypeError("a Stack that looks ahead reads whole sequences and takes no initial state")
        states = []
        for layer, before in zip(self, state or [None] * len(self), strict=True):
            x, after = layer(x, before, mask=mask)
            states.append(after)
        return x, tuple(states)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        states = []
        for layer, before in zip(self, state or [None] * len(self), strict=True):
            x_t, after = layer.step(x_t, before)
            states.append(after)
        return x_t, tuple(states)

    def extra_repr(self) -> str:
        return repr(list(self))


class Residual(Wrapper):
    """A residual connection, `y = x + layer(x)` (He et al. 2016). Raises ValueError if `d_in` and `d_out` differ."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__(layer)
        if layer.d_in != layer.d_out:
            raise ValueError(f"a residual connection needs d_out = d_in; {layer!r} has {layer.d_out} and {layer.d_in}")

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        y, state = self.layer(x, state, mask=mask)
        return x + y, state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        y_t, state = self.layer.step(x_t, state)
        return x_t + y_t, state


class Alongside(Wrapper):
    """A layer with a bypass for the last `d_past` features: `y = [layer(x₁); x₂]` for `x = [x₁; x₂]`.

    In a `Stack` these features enter the layer above, as in TagLM (Peters et al. 2017).
    """

    def __init__(self, layer: SequenceLayer, *, d_past: int) -> None:
        super().__init__(layer)
        self.d_past = d_past
        self.d_in, self.d_out = layer.d_in + d_past, layer.d_out + d_past

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        x1, x2 = x[..., : self.layer.d_in], x[..., self.layer.d_in :]
        y, state = self.layer(x1, state, mask=mask)
        return torch.cat((y, x2), dim=-1), state

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        x1, x2 = x_t[..., : self.layer.d_in], x_t[..., self.layer.d_in :]
        y_t, state = self.layer.step(x1, state)
        return torch.cat((y_t, x2), dim=-1), state

    def extra_repr(self) -> str:
        return f"{self.layer!r}, d_past={self.d_past}"


class Bidirectional(Parallel):
    """Two layers: `backward` reads each row from its last real position to its first (Schuster & Paliwal 1997).

    The outputs at a position are concatenated (default), summed, multiplied or averaged. The final state is the pair of
    the layers' final states; the backward layer ends at the first position of a row. The layer looks ahead, so it has
    no `step` and takes no initial state.
    """

    is_causal = False

    def __init__(self, forward: SequenceLayer, backward: SequenceLayer, *, merge: Merge = "concatenate") -> None:
        super().__init__()
        if (forward.d_in, forward.d_out) != (backward.d_in, backward.d_out):
            raise ValueError(f"both directions need the same sizes; found {forward!r} and {backward!r}")
        if merge not in MERGES:
            raise ValueError(f"merge must be concatenate, sum, product or mean, found {merge!r}")
        self.rightward, self.leftward, self.merge = forward, backward, merge
        self.d_in, self.d_out = forward.d_in, forward.d_out * (2 if merge == "concatenate" else 1)

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        if state is not None:
            raise TypeError("Bidirectional reads whole sequences and takes no initial state")
        y_forward, final_forward = self.rightward(x, mask=mask)
        y_backward, final_backward = self.leftward(reverse_rows(x, mask), mask=mask)
        return MERGES[self.merge](y_forward, reverse_rows(y_backward, mask)), (final_forward, final_backward)

    def extra_repr(self) -> str:
        return f"{self.rightward!r}, {self.leftward!r}, merge={self.merge!r}"


def reverse_rows(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, T, d) with the real positions of each row in reverse order, followed by the row's padding."""
    if mask is None:
        return x.flip(1)
    positions = torch.arange(x.shape[1], device=x.device)
    lengths = mask.sum(1, keepdim=True)
    order = torch.where(mask, lengths - 1 - positions, positions)
    return x.gather(1, order.unsqueeze(-1).expand_as(x))


class ScalarMix(nn.Module):
    """A weighted sum of L layers, `γ Σ_j softmax(s)_j h_j` (Peters et al. 2018, eq. 1); at first, their mean."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.scores = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, h: Float[Tensor, "*shape L d"]) -> Float[Tensor, "*shape d"]:
        """Return the mix (..., d) of the layers `h` (..., L, d). Raises ValueError for another number of layers."""
        expect(type(self).__name__, "h", h, (..., self.num_layers, ANY), self.scores.dtype, like=self.scores)
        return (h * (self.gamma * self.scores.softmax(0)).unsqueeze(1)).sum(-2)

    def extra_repr(self) -> str:
        return f"num_layers={self.num_layers}"
