"""The contract of a layer: a function with two executions, `forward` over a sequence and `step` over one position.

`tests/laws` tests every layer for it (`ensue.testing.laws`):

- `x` is (B, T, d_in), batch first. `mask` (B, T) is True on a row's real positions; they come first (right padding).
- At every real position, `forward` gives the output that a fold of `step` gives. Outputs at padding are unspecified.
  The values of `x` at padding (NaN too) change neither another output nor the final state.
- The final state of a row is its state after its last real position. `forward(rest, state)` continues from it.
- A state is a value (`ensue.types`): an argument and a result, never kept and never changed in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import RLock
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.engine import unroll
from ensue.nn.border import guarded, guarded_start
from ensue.nn.taps import is_watched
from ensue.types import Memory, State, hold, map_state


class SequenceLayer(nn.Module, ABC):
    """A map from sequences of `d_in` features to sequences of `d_out` features, of the same length."""

    d_in: int
    d_out: int
    is_causal: bool = True
    """Whether an output depends on its own and earlier positions only. Only such a layer has a `step`."""
    d_memory: int | None = None
    """The number of features of the memory that it attends to; None for a layer that has no use for one."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Every layer gets the checks of `ensue.nn.border`."""
        super().__init_subclass__(**options)
        for entry in ("forward", "fold", "step"):
            function = vars(cls).get(entry)
            if function is not None and not getattr(function, "__isabstractmethod__", False):
                setattr(cls, entry, guarded(entry, function))
        if "init_state" in vars(cls):
            cls.init_state = guarded_start(cls.init_state)  # type: ignore[method-assign]

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """The state before the first position, for `batch_size` rows.

        `memory` is what a decoder attends to: values (batch_size, S, d_memory), and the mask of their real positions,
        which come first. None is a memory of no positions. Raises `ValueError` for a memory of wrong sizes and
        `TypeError` for one of a wrong type or device.
        """
        return None

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """All positions at once, from `state` (None: from the beginning). Returns the outputs and the final state.

        Raises `ValueError` for a wrong size and `TypeError` for a wrong type or device of x, the state or the mask.
        """

    @abstractmethod
    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        """One position. Returns its output and the state after it."""

    def __repr__(self) -> str:
        """One line: the call that makes the layer."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_out={self.d_out}"


class Wrapper(SequenceLayer):
    """A layer around another one, whose sizes, direction and state it has."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer = layer
        self.d_in, self.d_out, self.d_memory = layer.d_in, layer.d_out, layer.d_memory
        self.is_causal = layer.is_causal

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.layer.init_state(batch_size, memory)

    def extra_repr(self) -> str:
        return repr(self.layer)


class Recurrent(SequenceLayer):
    """A layer that is written as the equations of one position: write `step`, and `forward` follows from it.

    The engine (`ensue.engine`) derives from `step` how to run and differentiate whole sequences. A layer that the
    engine cannot run, or that is watched, runs step by step. However it runs, outputs at padding are zero. A subclass
    may override `forward` with something faster; it has to agree with `fold`.
    """

    in_bfloat16 = False
    """Whether sequences are read as under autocast, with products in bfloat16."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A kernel is for the `step` of its own class."""
        super().__init_subclass__(**options)
        if "step" in vars(cls) and "kernel" not in vars(cls):
            cls.kernel = Recurrent.kernel  # type: ignore[method-assign]

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        if self.in_bfloat16 and not torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, torch.bfloat16):
                results = self.forward(x, state, mask=mask)
            y, after = map_state(lambda leaf: leaf.to(x.dtype) if leaf.is_floating_point() else leaf, results)
            return y, after
        found = None if is_watched(self) else unroll(self, x, state, mask, self.kernel)
        return self.fold(x, state, mask=mask) if found is None else found

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        """The results of `fold` by a kernel of torch or a scan, for where nothing is compiled; None without one."""
        return None

    def fold(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """Calls `step` from left to right. At padding the state does not change, and the output is zero."""
        state = self.init_state(len(x)) if state is None else state
        x = blank(x, mask)
        outputs = []
        for t in range(x.shape[1]):
            y_t, new = self.step(x[:, t], state)
            state = new if mask is None else hold(mask[:, t], new, state)
            outputs.append(y_t)
        return blank(torch.stack(outputs, dim=1), mask) if outputs else x.new_zeros(len(x), 0, self.d_out), state


class Parallel(SequenceLayer):
    """A layer that reads a whole sequence at once: write `forward`; `step` is `forward` on one position."""

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        if not self.is_causal:
            raise TypeError(f"{type(self).__name__} looks ahead; it reads whole sequences and has no step")
        y, state = self(x_t.unsqueeze(1), state)
        return y.squeeze(1), state


class Pointwise(Parallel):
    """A module that computes each position by itself (normalization, dropout, a projection), as a layer.

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


_replacing = RLock()
"""Held while weights of a layer are replaced for a call, and while a layer whose weights may be replaced is read."""


def with_weights(
    layer: SequenceLayer, weights: Callable[[], dict[str, Tensor]], x: Tensor, state: State, mask: Tensor | None
) -> tuple[Tensor, State]:
    """The layer's `forward` with these weights in place of its own. Threads that share the layer wait for each other,
    also to read the weights that `weights` needs.
    """
    with _replacing:
        y, after = torch.func.functional_call(layer, weights(), (x, state), {"mask": mask})
    return y, after


def step_of(layer: SequenceLayer, x_t: Tensor, state: State) -> tuple[Tensor, State]:
    """The `step` of a layer whose weights another thread may have replaced."""
    with _replacing:
        return layer.step(x_t, state)


def blank(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (B, T, d) with zeros where `mask` (B, T) is False, so that no value there can spread, not even NaN."""
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
