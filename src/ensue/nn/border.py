"""Checks of arguments: sizes, types and devices of x, state, mask and memory, at the outermost call of a layer.

A wrong size raises ValueError, a wrong type or device TypeError; messages say what was expected and found.
`SequenceLayer` wraps `forward`, `fold`, `step` and `init_state` of every layer in these checks; other modules and
functions call `expect`. Layers check nothing inside torch's transforms, which run torch's operations only, no C code.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from types import EllipsisType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ensue.engine.storage import is_transformed
from ensue.types import Memory, Shared, State, change_temporarily, copy_views, detach, leaves

Sizes = Sequence[int | str | EllipsisType]
"""The sizes of a tensor; a string matches any size, and is the name of the dimension in messages."""
ANY = "any"
WEIGHT_HOOKS = ("torch.nn.utils.prune", "torch.nn.utils.weight_norm")
"""The modules of the hooks that compute a weight before `forward`."""


class Mismatch(NamedTuple):
    """A difference between an argument and its expected type, sizes or device."""

    error_class: type[Exception]
    expected: str
    """A format string, in which {} stands for the argument's name."""
    found: object
    path: str = ""

    def error(self, where: str, what: str) -> Exception:
        """Return the exception. `where` is the name of the function, `what` the name of the argument."""
        return self.error_class(f"{where} expects {self.expected.format(what + self.path)}, found {self.found}")


def find_state_mismatch(state: Any, like: State, rows: int, free_sizes: str = "") -> Mismatch | None:
    """Return how a state of `rows` rows differs from `like`, an initial state; None if it fits.

    With `free_sizes` = "zeros", sizes that are 0 in `like` may differ; with "length", dimension 1 may have any size.
    """
    if type(like) is Tensor:
        sizes: tuple[int | str, ...] = (rows, *like.shape[1:])
        if type(state) is Tensor and state.shape == sizes and state.dtype is like.dtype and state.device == like.device:
            return None  # fast path
        if free_sizes:
            inner = like.shape[1:]
            sizes = (rows, *((size or ANY for size in inner) if free_sizes == "zeros" else (ANY, *inner[1:])))
        return find_mismatch(state, sizes, like.dtype, like.device)
    if like is None:
        return None if state is None else Mismatch(TypeError, "no initial {}", _type_name(state))
    if isinstance(like, Shared):
        return _find_shared_mismatch(state, like, rows)
    return _find_tuple_mismatch(state, like, rows, free_sizes)


def _find_tuple_mismatch(state: Any, like: Any, rows: int, free_sizes: str) -> Mismatch | None:
    """Return the mismatch of a tuple of states. Sizes of a `Growing` state that are 0 in `like` have to be equal."""
    names = getattr(like, "_fields", None)
    if type(state) is not type(like) or len(state) != len(like):
        expected = f"a tuple of {len(like)}" if names is None else type(like).__name__
        return Mismatch(TypeError, f"{{}} as {expected}", _type_name(state))
    is_growing = not free_sizes and hasattr(type(like), "num_positions")
    lengths = set()
    for index, (item, start) in enumerate(zip(state, like, strict=True)):
        mismatch = find_state_mismatch(item, start, rows, "zeros" if is_growing else free_sizes)
        if mismatch is not None:
            return mismatch._replace(path=(f"[{index}]" if names is None else f".{names[index]}") + mismatch.path)
        if is_growing and isinstance(start, Tensor):
            lengths |= {n for zero, n in zip(start.shape[1:], item.shape[1:], strict=True) if not zero}
    return Mismatch(ValueError, "{} of one length", sorted(lengths)) if len(lengths) > 1 else None


def _find_shared_mismatch(state: Any, like: Shared, rows: int) -> Mismatch | None:
    """Return the mismatch unless `rows` rows share texts of equal length, with the sizes and types of `like`."""
    if not isinstance(state, Shared):
        return Mismatch(TypeError, "{} as Shared", _type_name(state))
    mismatch = find_state_mismatch(state.content, like.content, _num_texts(state.content), "length")
    if mismatch is not None:
        return mismatch._replace(path=".content" + mismatch.path)
    lengths = sorted({leaf.shape[1] for leaf in leaves(state.content)})
    if len(lengths) > 1:
        return Mismatch(ValueError, "{} of one length", lengths, ".content")
    mismatch = find_mismatch(state.rows, (rows,), torch.int64, next(leaves(state.content)).device)
    if mismatch is None and state.invalid_row is not None:
        mismatch = Mismatch(ValueError, f"{{}} from 0 to {state.num_texts - 1}", state.invalid_row)
    return None if mismatch is None else mismatch._replace(path=".rows")


def _num_texts(content: Any) -> int:
    while isinstance(content, tuple) and content:
        content = content[0]
    return content.shape[0] if isinstance(content, Tensor) and content.dim() else 0


class ExpectedArguments:
    """The expected arguments of a module with `d_in` and `init_state`, for its current type and device."""

    def __init__(self, module: Any) -> None:
        self.d_in = module.d_in
        self._tensors, self._name = _find_reference(module)
        reference = self._tensors.get(self._name)
        self.dtype = None if reference is None else reference.dtype
        self.device = None if reference is None else reference.device
        self.start = detach(torch.no_grad()(module.init_state)(1))

    def find_mismatch(self, x: Any, state: Any, mask: Any, leading: tuple[str, ...]) -> tuple[str, Mismatch] | None:
        """Return the name and mismatch of the first wrong argument, or None. `leading` names dimensions before d_in."""
        reference = self._tensors.get(self._name)
        if reference is not None and reference.dtype is not self.dtype:
            return "parameters", Mismatch(TypeError, f"{{}} in {self.dtype}", reference.dtype)
        fits = type(x) is Tensor and x.dtype is self.dtype and x.device == self.device  # fast path
        if not (fits and len(x.shape) == len(leading) + 1 and x.shape[-1] == self.d_in):
            mismatch = find_mismatch(x, (*leading, self.d_in), self.dtype, self.device)
            if mismatch is not None:
                return "x", mismatch
        mismatch = None if state is None else find_state_mismatch(state, self.start, x.shape[0])
        if mismatch is not None:
            return "state", mismatch
        if mask is not None:
            mismatch = find_mismatch(mask, x.shape[:2], torch.bool, x.device) or _find_mask_gap(mask)
        return None if mismatch is None else ("mask", mismatch)


class _Checked(threading.local):
    """Whether this thread is inside a call whose arguments were checked."""

    is_inside = False


_checked = _Checked()


def unchecked() -> AbstractContextManager[None]:
    """Skip the checks of layers in a `with` block, in this thread, for example for meta tensors."""
    return change_temporarily(partial(setattr, _checked, "is_inside"), True, _checked.is_inside)


_expected_arguments: WeakKeyDictionary[nn.Module, ExpectedArguments] = WeakKeyDictionary()
_initial_states: WeakKeyDictionary[nn.Module, State] = WeakKeyDictionary()


def guarded_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `step` of a layer with weight hooks and checks. The layer's `run_step` runs first, if there is one."""

    @wraps(function)
    def step(self: Any, x_t: Any, state: Any = None) -> Any:
        if self._forward_pre_hooks:
            run_weight_hooks(self)
        run_step = None if type(self).step is not step or "step" in vars(self) else self.run_step  # overrides call step
        if run_step is not None and (results := run_step(x_t, state, is_checked=False)) is not None:
            return results
        if is_transformed():
            return function(self, x_t, state)
        is_outermost = not _checked.is_inside
        if is_outermost:
            _check(self, "step", x_t, state, None, ("rows",))
            _checked.is_inside = True
        try:
            results = None if run_step is None else run_step(x_t, state, is_checked=True)
            return function(self, x_t, state) if results is None else results
        finally:
            _checked.is_inside = not is_outermost

    return step


def guarded_sequence(name: str, function: Callable[..., Any], run_known: Any = None) -> Callable[..., Any]:
    """Return `forward` or `fold` with checks. Without gradients, the final state has its own memory (is not a view).

    If `run_known` is given and returns results for x and the state, neither the checks nor `function` run.
    """

    @wraps(function)
    def sequence(self: Any, x: Any, state: Any = None, *, mask: Any = None) -> Any:
        if run_known is not None and mask is None and (results := run_known(self, x, state)) is not None:
            return results
        if _checked.is_inside or is_transformed():
            return function(self, x, state, mask=mask)
        _check(self, name, x, state, mask, ("rows", "positions"))
        _checked.is_inside = True
        try:
            y, state = function(self, x, state, mask=mask)
        finally:
            _checked.is_inside = False
        return y, state if torch.is_grad_enabled() else copy_views(state)

    return sequence


def get_weight(module: Any) -> Tensor:
    """Run the weight hooks of a module whose `forward` is not called, and return the module's weight."""
    if module._forward_pre_hooks:
        run_weight_hooks(module)
    return module.weight


def run_weight_hooks(module: nn.Module) -> None:
    """Run torch's hooks that compute a weight from other tensors: pruning and weight normalization."""
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__ in WEIGHT_HOOKS:
            hook(module, ())


def guarded_init_state(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `init_state` of a layer with a check of the memory."""

    @wraps(function)
    def init_state(self: Any, batch_size: int, memory: Any = None) -> Any:
        if memory is None or self.d_memory is None or _checked.is_inside or is_transformed():
            return function(self, batch_size, memory)
        expect_memory(self, batch_size, memory)
        with unchecked():
            return function(self, batch_size, memory)

    return init_state


def guarded_update(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `update` of a pooling with checks of its arguments; a segment without positions changes nothing."""

    @wraps(function)
    def update(self: Any, state: Any, h: Any, mask: Any = None) -> Any:
        if not (_checked.is_inside or is_transformed()):
            _check(self, "update", h, state, mask, ("rows", "positions"))
        with unchecked():
            state = self.init_state(len(h)) if state is None else state
            return function(self, state, h, mask) if h.shape[1] else state

    return update


def guarded_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `result` of a pooling with a check of the state."""

    @wraps(function)
    def result(self: Any, state: Any) -> Any:
        if not (_checked.is_inside or is_transformed()):
            rows = next((leaf.shape[0] for leaf in leaves(state) if leaf.dim()), 0)
            expect_state(self, f"{type(self).__name__}.result", "state", state, rows, lambda: self.init_state(1))
        with unchecked():
            return function(self, state)

    return result


def _check(module: nn.Module, name: str, x: Any, state: Any, mask: Any, leading: tuple[str, ...]) -> None:
    expected = _expected_arguments.get(module)
    if expected is None or expected.find_mismatch(x, state, mask, leading) is not None:
        _expected_arguments[module] = expected = ExpectedArguments(module)  # the module may have changed
        mismatch = expected.find_mismatch(x, state, mask, leading)
        if mismatch is not None:
            argument, reason = mismatch
            raise reason.error(f"{type(module).__name__}.{name}", argument)


def expect(where: str, what: str, tensor: Any, sizes: Sizes, dtype: Any = None, *, like: Tensor | None = None) -> None:
    """Raise ValueError unless `tensor` has these sizes, and TypeError unless it has this type and the device of `like`.

    `where` and `what` name the function and the argument. After an initial `...`, `sizes` are the trailing sizes.
    `dtype` is a type, `int` for integers, or None for any floating-point type.
    """
    if sizes[:1] == (...,):
        leading = tensor.dim() - len(sizes) + 1 if isinstance(tensor, Tensor) else 0
        sizes = (*[ANY] * max(leading, 0), *sizes[1:])
    mismatch = find_mismatch(tensor, sizes, dtype, None if like is None else like.device)
    if mismatch is not None:
        raise mismatch.error(where, what)


def find_mismatch(tensor: Any, sizes: Sizes, dtype: Any, device: torch.device | None) -> Mismatch | None:
    """Return how a tensor differs from the sizes, the type (both as in `expect`) and the device; None if it fits."""
    if not isinstance(tensor, Tensor):
        return Mismatch(TypeError, "{} as a tensor", _type_name(tensor))
    shape = tensor.shape
    if shape != sizes and not (
        len(shape) == len(sizes) and all(isinstance(s, str) or s == n for n, s in zip(shape, sizes, strict=True))
    ):
        return Mismatch(ValueError, f"{{}} of {_format_sizes(sizes)}", _format_sizes(shape))
    if tensor.dtype is not dtype and not _has_dtype(tensor, dtype):
        expected = {None: "of floating-point numbers", int: "of integers"}.get(dtype, f"in {dtype}")
        return Mismatch(TypeError, f"{{}} {expected}", tensor.dtype)
    if device is not None and tensor.device != device:
        return Mismatch(TypeError, f"{{}} on {device}", tensor.device)
    return None


def expect_mask(where: str, mask: Any, like: Tensor, what: str = "mask") -> None:
    """Raise an exception unless `mask` is None or a mask of right padding for `like` (B, T, ...)."""
    if mask is not None:
        mismatch = find_mismatch(mask, like.shape[:2], torch.bool, like.device) or _find_mask_gap(mask)
        if mismatch is not None:
            raise mismatch.error(where, what)


def expect_memory(module: Any, rows: int, memory: Any) -> None:
    """Raise an exception unless `memory` has `rows` rows and the module's `d_memory`, type and device."""
    where = f"{type(module).__name__}.init_state"
    if not isinstance(memory, Memory):
        raise Mismatch(TypeError, "{} as Memory", _type_name(memory)).error(where, "memory")
    tensors, name = _find_reference(module)
    like = tensors.get(name)
    sizes = (rows, "positions", module.d_memory)
    expect(where, "memory.values", memory.values, sizes, None if like is None else like.dtype, like=like)
    expect_mask(where, memory.mask, memory.values, "memory.mask")


def expect_state(module: Any, where: str, what: str, state: Any, rows: int, start: Callable[[], State]) -> None:
    """Raise an exception unless `state`, of `rows` rows, has the sizes and types of `start()`, an initial state."""
    like = _initial_states.get(module, ...)
    if like is ... or find_state_mismatch(state, like, rows) is not None:
        _initial_states[module] = like = detach(torch.no_grad()(start)())  # the module may have changed
        mismatch = find_state_mismatch(state, like, rows)
        if mismatch is not None:
            raise mismatch.error(where, what)


def expect_words(where: str, ids: Any, mask: Tensor | None) -> None:
    """Raise an exception unless `ids` and `mask` (or None) are (words, characters)."""
    expect(where, "ids", ids, ("words", "characters"), int)
    expect_mask(where, mask, ids)


def _find_mask_gap(mask: Tensor) -> Mismatch | None:
    """Return the mismatch if a real position follows padding in the mask, else None."""
    if _checked.is_inside or is_transformed() or not bool((mask[:, 1:] > mask[:, :-1]).any()):
        return None
    row = int((mask[:, 1:] > mask[:, :-1]).any(1).nonzero()[0])
    return Mismatch(ValueError, "{} whose real positions come first", f"padding before a real position in row {row}")


def _has_dtype(tensor: Tensor, dtype: Any) -> bool:
    """Return whether a tensor's type matches `dtype` of `expect`, or the type of autocast."""
    if dtype is int:
        return tensor.dtype in (torch.int32, torch.int64)
    if dtype is None or not dtype.is_floating_point:
        return dtype is None and tensor.is_floating_point()
    device = tensor.device.type
    return torch.is_autocast_enabled(device) and tensor.dtype in (torch.get_autocast_dtype(device), torch.float32)


def _find_reference(module: nn.Module) -> tuple[dict[str, Tensor | None], str]:
    """Return the dict and the key of a tensor of the module's type and device; skip modules with `takes_any_type`."""
    for tensors in ("_parameters", "_buffers"):
        for submodule in module.modules():
            if not getattr(submodule, "takes_any_type", False):
                for name, tensor in getattr(submodule, tensors).items():
                    if tensor is not None and tensor.is_floating_point():
                        return getattr(submodule, tensors), name
    return {}, ""


def _format_sizes(sizes: Sizes) -> str:
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def expect_targets(where: str, targets: Tensor, shape: tuple[int, ...], like: Tensor, vocabulary_size: int) -> None:
    """Raise ValueError for targets of another shape, or outside of 0 to `vocabulary_size` - 1 (torch would skip -100).

    Values are checked on a CPU only. On a GPU the check would wait for the device, whose kernels check targets.
    """
    expect(where, "targets", targets, shape, torch.int64, like=like)
    if targets.device.type == "cpu" and not is_transformed():
        expect_range(where, "targets", targets, vocabulary_size - 1)


def expect_range(where: str, what: str, ids: Tensor, last: int) -> None:
    """Raise ValueError unless all integers are from 0 to `last`."""
    if ids.numel():
        lowest, highest = map(int, ids.aminmax())
        if lowest < 0 or highest > last:
            raise ValueError(f"{where} expects {what} from 0 to {last}, found {lowest if lowest < 0 else highest}")
