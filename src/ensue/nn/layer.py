"""The one idea of a layer: a function with two executions, `forward` over a sequence and `step` over one position.

Contract, which `tests/laws` holds every layer to:

- `x` is (B, T, d_in), batch first. `mask` (B, T) is True on a row's real positions; they come first (right padding).
- `forward` of a whole sequence gives, at every real position, what a fold of `step` gives. Outputs at padding are
  unspecified, and what stands in `x` there (NaN too) reaches neither another output nor the final state.
- The final state is a row's state after its last real position. `forward(rest, state)` goes on from it.
- A state is a value (`ensue.types`): given as an argument, returned, never kept and never changed in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.engine import unroll
from ensue.nn.border import guarded
from ensue.nn.taps import is_watched
from ensue.types import Memory, State, hold


class SequenceLayer(nn.Module, ABC):
    """A map from sequences of `d_in` features to sequences of `d_out` features, of the same length."""

    d_in: int
    d_out: int
    is_causal: bool = True
    """Whether an output depends on its own and earlier positions only; only such a layer can step."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Whoever writes a layer gets the checks of `ensue.nn.border` with it."""
        super().__init_subclass__(**options)
        for entry in ("forward", "fold", "step"):
            function = vars(cls).get(entry)
            if function is not None and not getattr(function, "__isabstractmethod__", False):
                setattr(cls, entry, guarded(entry, function))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """The state before the first position, for `batch_size` rows. Attention over another sequence enters here."""
        return None

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """All positions at once, from `state` (None: from the beginning). Returns the outputs and the final state."""

    @abstractmethod
    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        """One position. Returns its output and the state after it."""

    def __repr__(self) -> str:
        """One line, as one would construct the layer; its parts are shown where they are its arguments."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_out}"


class Recurrent(SequenceLayer):
    """A layer whose equations are those of one position: write `step`; `forward` is its fold, made fast.

    The engine (`ensue.engine`) derives from `step` how to run and differentiate whole sequences. What it cannot run,
    and whatever is watched, goes step by step. A subclass may override `forward` with something faster still; `fold`
    remains what it has to agree with.
    """

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        found = None if is_watched(self) else unroll(self, x, state, mask)
        return self.fold(x, state, mask=mask) if found is None else found

    def fold(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """`step` from left to right; a row's state is held where its mask is False."""
        state = self.init_state(len(x)) if state is None else state
        x = blank(x, mask)
        outputs = []
        for t in range(x.shape[1]):
            y_t, new = self.step(x[:, t], state)
            state = new if mask is None else hold(mask[:, t], new, state)
            outputs.append(y_t)
        return torch.stack(outputs, dim=1) if outputs else x.new_zeros(len(x), 0, self.d_out), state


class Parallel(SequenceLayer):
    """A layer that sees a whole sequence at once: write `forward`; `step` is `forward` on one position."""

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        if not self.is_causal:
            raise TypeError(f"{type(self).__name__} looks ahead; it reads whole sequences and has no step")
        y, state = self(x_t.unsqueeze(1), state)
        return y.squeeze(1), state


class Pointwise(Parallel):
    """Any module that treats each position by itself (normalization, dropout, a projection), as a layer.

    `module` maps (..., d_in) to (..., d_out).
    """

    def __init__(self, module: nn.Module, *, d_in: int, d_out: int | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_in if d_out is None else d_out
        self.module = module

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        return self.module(x), None

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.module(x_t), None

    def extra_repr(self) -> str:
        return f"{self.module!r}, {super().extra_repr()}"


def blank(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (B, T, d) with zeros where `mask` (B, T) is False, so that nothing there can spread, not even NaN."""
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
