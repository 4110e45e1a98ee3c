"""The contract of a layer: a function with two executions, `forward` over a sequence and `step` over one position.

The laws of `ensue.testing.laws` test every layer (`tests/laws`):

- `x` is (B, T, d_in), batch first. `mask` (B, T) is True on a row's real positions; they come first (right padding).
- In evaluation, the outputs of a causal layer's `forward` at real positions are the outputs of `step`, called for one
  position after another. Outputs at padding are unspecified. The values of `x` at padding (NaN too) change no other
  output and no final state.
- The final state of a row is its state after its last real position. `forward(rest, state)` continues from it.
- A state is a value (`ensue.types`): an argument and a result, never stored in a module, never changed in place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import RLock
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.engine.execution import executing, run_known, unroll
from ensue.nn.border import guarded_init_state, guarded_sequence, guarded_step
from ensue.nn.taps import is_watched
from ensue.types import Memory, State, hold, map_state


class SequenceLayer(nn.Module, ABC):
    """A map from sequences of `d_in` features to sequences of `d_out` features, of the same length."""

    d_in: int
    d_out: int
    is_causal: bool = True
    """Whether the output at a position depends on this and earlier positions only. Other layers have no `step`."""
    d_memory: int | None = None
    """The number of features of the memory that the layer reads; None for a layer without a memory."""
    repr_arguments: tuple[str, ...] = ("d_in", "d_out")
    """The constructor arguments in `repr(layer)`; the layer has attributes of the same names."""
    run_step: Any = None
    """A faster function than `step`, or None. The function may return None (`Recurrent.run_step`)."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the methods in the checks of `ensue.nn.border`."""
        super().__init_subclass__(**options)
        for name in ("forward", "fold", "step"):
            function = vars(cls).get(name)
            if function is not None and not getattr(function, "__isabstractmethod__", False):
                run_known = vars(cls).get("run_known") if name == "forward" else None
                guarded = guarded_step(function) if name == "step" else guarded_sequence(name, function, run_known)
                setattr(cls, name, guarded)
        if "init_state" in vars(cls):
            cls.init_state = guarded_init_state(cls.init_state)  # type: ignore[method-assign]

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """Return the state before the first position.

        Args:
            batch_size: The number of rows.
            memory: The memory of a decoder: values (batch_size, S, d_memory), and the mask of their real positions,
                which come first. None is a memory without positions.

        Raises:
            ValueError: The memory has wrong sizes.
            TypeError: The memory has a wrong type or device.
        """
        return None

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """Compute all positions.

        Args:
            x: The inputs, (B, T, d_in).
            state: The state before the first position; None: the result of `init_state`.
            mask: True at real positions, (B, T), which come first; None: all positions are real.

        Returns:
            The outputs (B, T, d_out) and the final state.

        Raises:
            ValueError: A size of x, the state or the mask is wrong.
            TypeError: A type or device is wrong.
        """

    @abstractmethod
    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        """Compute one position, (B, d_in). Returns its output (B, d_out) and the next state."""

    def __repr__(self) -> str:
        """Return the constructor call of the layer."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.repr_arguments)


class Wrapper(SequenceLayer):
    """A layer around another layer. Unless overridden, its sizes, causality, state and outputs are those of `layer`."""

    @abstractmethod
    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer = layer
        self.d_in, self.d_out, self.d_memory = layer.d_in, layer.d_out, layer.d_memory
        self.is_causal = layer.is_causal

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        return self.layer.init_state(batch_size, memory)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        return self.layer(x, state, mask=mask)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        return self.layer.step(x_t, state)

    def extra_repr(self) -> str:
        return repr(self.layer)


class Recurrent(SequenceLayer):
    """A layer defined by `step`, the equations of one position.

    The engine (`ensue.engine`) derives `forward` and its gradient from `step`. If the engine cannot run a layer, or a
    tap of the layer is watched, `forward` calls `fold`. Outputs at padding are zero. A subclass may override `forward`
    with a faster function, which has to agree with `fold`.
    """

    in_bfloat16 = False
    """Whether `forward` runs under autocast to bfloat16."""
    in_int8 = False
    """Whether compiled passes without gradients multiply int8 numbers."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset `kernel` in a subclass that overrides `step`, since a kernel implements one specific `step`."""
        super().__init_subclass__(**options)
        if "step" in vars(cls) and "kernel" not in vars(cls):
            cls.kernel = Recurrent.kernel  # type: ignore[method-assign]

    def run_known(self, x: Any, state: Any) -> tuple[Tensor, State] | None:
        """Return the results of `forward` if x and the state need no checks, or None (`ensue.engine.run_known`)."""
        return None if self.in_bfloat16 or is_watched(self) else run_known(self, x, state)

    def run_step(self, x_t: Any, state: Any, *, is_checked: bool) -> tuple[Tensor, State] | None:
        """Return the results by the compiled `forward` of one position; None with gradients, or without compilation."""
        fits = type(x_t) is Tensor and x_t.dim() == 2 and x_t.layout is torch.strided
        if torch.is_grad_enabled() or self.in_bfloat16 or not fits or is_watched(self):
            return None
        x = x_t.unsqueeze(1)
        results = unroll(self, x, state, None, only_compiled=True) if is_checked else run_known(self, x, state)
        return None if results is None else (results[0].squeeze(1), results[1])

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        if self.in_bfloat16 and not torch.is_autocast_enabled(x.device.type):
            with torch.autocast(x.device.type, torch.bfloat16):
                results = self.forward(x, state, mask=mask)
            y, after = map_state(lambda leaf: leaf.to(x.dtype) if leaf.is_floating_point() else leaf, results)
            return y, after
        result = None if is_watched(self) else unroll(self, x, state, mask, self.kernel)
        return self.fold(x, state, mask=mask) if result is None else result

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        """Return the results of `fold` by a torch kernel or a scan, or None. Not called where compiled C code runs."""
        return None

    def fold(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        """Call `step` at each position in order. At padding the state does not change, and the output is zero."""
        state = self.init_state(len(x)) if state is None else state
        x = mask_padding(x, mask)
        outputs = []
        with executing("fold"):
            for t in range(x.shape[1]):
                y_t, new = self.step(x[:, t], state)
                state = new if mask is None else hold(mask[:, t], new, state)
                outputs.append(y_t)
        return mask_padding(torch.stack(outputs, dim=1), mask) if outputs else x.new_zeros(len(x), 0, self.d_out), state


class Parallel(SequenceLayer):
    """A layer defined by `forward`, which computes all positions at once; `step` is `forward` on one position."""

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], State]:
        if not self.is_causal:
            raise TypeError(f"{type(self).__name__} looks ahead: it reads whole sequences and has no step")
        y, state = self(x_t.unsqueeze(1), state)
        return y.squeeze(1), state


class Pointwise(Parallel):
    """A layer of a module that maps each position independently, (..., d_in) to (..., d_out)."""

    def __init__(self, module: nn.Module, *, d_in: int, d_out: int | None = None) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_in if d_out is None else d_out
        self.module = module

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        return self.module(x), None

    def extra_repr(self) -> str:
        return f"{self.module!r}, {super().extra_repr()}"


_weights_lock = RLock()
"""Held during a call with replaced weights and during `step_with_lock`, since threads share a layer's weights."""


def call_with_weights(
    layer: SequenceLayer, weights: Callable[[], dict[str, Tensor]], x: Tensor, state: State, mask: Tensor | None
) -> tuple[Tensor, State]:
    """Call a layer with the result of `weights` in place of its weights, while no other thread replaces weights."""
    with _weights_lock:
        y, after = torch.func.functional_call(layer, weights(), (x, state), {"mask": mask})
    return y, after


def step_with_lock(layer: SequenceLayer, x_t: Tensor, state: State) -> tuple[Tensor, State]:
    """Call the `step` of a layer whose weights another thread may replace by `call_with_weights`."""
    with _weights_lock:
        return layer.step(x_t, state)


def mask_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return `x` (B, T, d) with zeros where `mask` (B, T) is False, so that NaN at padding does not spread."""
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
