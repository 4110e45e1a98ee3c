"""A feed-forward network over a window of the last N positions."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.nn.layer import Parallel, mask_padding
from ensue.nn.taps import Tap
from ensue.types import Inputs, Mask, Memory, Outputs, State


class WindowState(NamedTuple):
    """The state of a `Window`."""

    last: Float[Tensor, "B before d_in"]
    """The last N - 1 inputs, the oldest first; zeros in place of inputs before the first position."""


def build_windows(
    x: Float[Tensor, "B T d"], last: Float[Tensor, "B before d"], mask: Mask
) -> tuple[Float[Tensor, "B T inputs"], Float[Tensor, "B before d"]]:
    """Return the window of inputs that ends at each position of x, and the new `last` inputs. `last` precedes x."""
    inputs, (before, length) = torch.cat((last, mask_padding(x, mask)), dim=1), (last.shape[1], x.shape[1])
    windows = torch.cat([inputs[:, k : k + length] for k in range(before + 1)], dim=-1)
    if mask is None:
        return windows, inputs[:, length:].clone()
    indices = mask.sum(1, keepdim=True) + torch.arange(before, device=inputs.device)
    return windows, inputs.gather(1, indices.unsqueeze(-1).expand(-1, -1, x.shape[2]))


class Window(Parallel):
    """A window network, `h_t = tanh(W [x_{t-N+1}; ...; x_t] + b)` (Bengio et al. 2003); `size` is N.

    Raises `ValueError` if `size` is below 1.
    """

    repr_arguments = ("d_in", "d_out", "size")

    def __init__(self, d_in: int, d_out: int, *, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a window must have at least one position, found {size}")
        self.d_in, self.d_out, self.size = d_in, d_out, size
        self.linear = nn.Linear(size * d_in, d_out)
        self.hidden = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> WindowState:
        return WindowState(self.linear.weight.new_zeros(batch_size, self.size - 1, self.d_in))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, WindowState]:
        (last,) = self.init_state(len(x)) if state is None else state
        windows, last = build_windows(x, last, mask)
        return self.hidden(torch.tanh(self.linear(windows))), WindowState(last)
