"""The check of a layer's arguments before anything reads them: sizes, types and devices of x, state, mask and memory.

A wrong size is a `ValueError`, a wrong type or device a `TypeError`. The message is one line that says what was
expected and what was found. `SequenceLayer` wraps `forward`, `fold`, `step` and `init_state` of every layer in this
check; `expect` is for other modules and functions. Inside of torch's transforms nothing is checked, since only torch's
operations run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import EllipsisType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ensue.engine.storage import is_transformed
from ensue.types import Memory, Shared, State, detach, leaves, owned

Sizes = Sequence[int | str | EllipsisType]
"""The sizes of a tensor; a word stands for any number."""
ANY = "any"
WEIGHT_HOOKS = ("torch.nn.utils.prune", "torch.nn.utils.weight_norm")
"""The modules of such hooks before `forward`."""


class Misfit(NamedTuple):
    """The difference between what was expected and what was found."""

    kind: type[Exception]
    expected: str
    """With {} in place of the argument's name."""
    found: object
    path: str = ""

    def error(self, where: str, what: str) -> Exception:
        """The exception, with a message of one line: `where` expects `what` to be so, and what was found."""
        return self.kind(f"{where} expects {self.expected.format(what + self.path)}, found {self.found}")


def misfit_of_state(state: Any, like: State, rows: int, free: str = "") -> Misfit | None:
    """How a state of `rows` rows differs from `like`, an initial one; None if it does not.

    With `free` = "zeros" the sizes that are 0 in `like` are free, with "lengths" that behind the rows is.
    """
    if type(like) is Tensor:
        sizes: tuple[int | str, ...] = (rows, *like.shape[1:])
        if type(state) is Tensor and state.shape == sizes and state.dtype is like.dtype and state.device == like.device:
            return None  # the usual case, quickly
        if free:
            rest = like.shape[1:]
            sizes = (rows, *((size or ANY for size in rest) if free == "zeros" else (ANY, *rest[1:])))
        return misfit(state, sizes, like.dtype, like.device)
    if like is None:
        return None if state is None else Misfit(TypeError, "no initial {}", _named(state))
    if isinstance(like, Shared):
        return _misfit_of_shared(state, like, rows)
    return _misfit_of_tuple(state, like, rows, free)


def _misfit_of_tuple(state: Any, like: Any, rows: int, free: str) -> Misfit | None:
    """The misfit of a tuple of states; one that grows has sizes of 0 at the beginning, which are free."""
    names = getattr(like, "_fields", None)
    if type(state) is not type(like) or len(state) != len(like):
        wanted = f"a tuple of {len(like)}" if names is None else type(like).__name__
        return Misfit(TypeError, f"{{}} as {wanted}", _named(state))
    grows = not free and hasattr(type(like), "grows")
    for index, (part, start) in enumerate(zip(state, like, strict=True)):
        found = misfit_of_state(part, start, rows, "zeros" if grows else free)
        if found is not None:
            return found._replace(path=(f"[{index}]" if names is None else f".{names[index]}") + found.path)
    return _misfit_of_lengths(state, like) if grows else None


def _misfit_of_lengths(state: Any, like: Any) -> Misfit | None:
    """The misfit unless the sizes that are 0 in `like` are the same in all tensors of a state that grows."""
    shapes = [(start.shape, part.shape) for part, start in zip(state, like, strict=True) if isinstance(start, Tensor)]
    lengths = {size for before, shape in shapes for zero, size in zip(before[1:], shape[1:], strict=True) if not zero}
    return Misfit(ValueError, "{} of one length", sorted(lengths)) if len(lengths) > 1 else None


def _misfit_of_shared(state: Any, like: Shared, rows: int) -> Misfit | None:
    """The misfit unless `rows` rows share texts of one length like those of `like`."""
    if not isinstance(state, Shared):
        return Misfit(TypeError, "{} as Shared", _named(state))
    found = misfit_of_state(state.content, like.content, _texts(state.content), "lengths")
    if found is not None:
        return found._replace(path=".content" + found.path)
    lengths = sorted({leaf.shape[1] for leaf in leaves(state.content)})
    if len(lengths) > 1:
        return Misfit(ValueError, "{} of one length", lengths, ".content")
    found = misfit(state.rows, (rows,), torch.int64, next(leaves(state.content)).device)
    if found is None and state.stray is not None:
        found = Misfit(ValueError, f"{{}} from 0 to {state.texts - 1}", state.stray)
    return None if found is None else found._replace(path=".rows")


def _texts(content: Any) -> int:
    while isinstance(content, tuple) and content:
        content = content[0]
    return content.shape[0] if isinstance(content, Tensor) and content.dim() else 0


class Border:
    """The arguments that a module with `d_in` and `init_state` takes, in its present type and device."""

    def __init__(self, module: Any) -> None:
        self.d_in = module.d_in
        self._held, self._name = _reference(module)
        some = self._held.get(self._name)
        self.dtype = None if some is None else some.dtype
        self.device = None if some is None else some.device
        self.start = detach(module.init_state(1))

    def misfit(self, x: Any, state: Any, mask: Any, before: tuple[str, ...]) -> tuple[str, Misfit] | None:
        """The name of the first argument that does not fit, and why; `before` names the sizes before x's features."""
        some = self._held.get(self._name)
        if some is not None and some.dtype is not self.dtype:
            return "parameters", Misfit(TypeError, f"{{}} in {self.dtype}", some.dtype)
        found = self._misfit_of_x(x, before)
        if found is not None:
            return "x", found
        found = None if state is None else misfit_of_state(state, self.start, x.shape[0])
        if found is not None:
            return "state", found
        found = None if mask is None else misfit(mask, x.shape[:2], torch.bool, x.device) or _gap(mask)
        return None if found is None else ("mask", found)

    def _misfit_of_x(self, x: Any, before: tuple[str, ...]) -> Misfit | None:
        if type(x) is Tensor and x.dtype is self.dtype and x.device == self.device:
            shape = x.shape
            if len(shape) == len(before) + 1 and shape[-1] == self.d_in:
                return None
        return misfit(x, (*before, self.d_in), self.dtype, self.device)


class _Inside(threading.local):
    """Whether the arguments of an outer call in this thread have been checked."""

    now = False


_inside = _Inside()


@contextmanager
def unchecked() -> Iterator[None]:
    """Inside, in this thread, layers take their arguments as they are, such as tensors without content."""
    before, _inside.now = _inside.now, True
    try:
        yield
    finally:
        _inside.now = before


_borders: WeakKeyDictionary[nn.Module, Border] = WeakKeyDictionary()
_starts: WeakKeyDictionary[nn.Module, State] = WeakKeyDictionary()


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, a `forward`, `fold` or `step` of a layer, with a check before it.

    Without gradients, the state that comes out of a whole sequence keeps nothing of it but its own numbers. `step`,
    which is not called as a module is, first makes weights that torch's hooks make of others.
    """
    return _step(function) if name == "step" else _whole(name, function)


def _step(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def step(self: Any, x_t: Any, state: Any = None) -> Any:
        if self._forward_pre_hooks:
            make_weights(self)
        if _inside.now or is_transformed():
            return function(self, x_t, state)
        _check(self, "step", x_t, state, None, ("rows",))
        _inside.now = True
        try:
            return function(self, x_t, state)
        finally:
            _inside.now = False

    return step


def _whole(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def whole(self: Any, x: Any, state: Any = None, *, mask: Any = None) -> Any:
        if _inside.now or is_transformed():
            return function(self, x, state, mask=mask)
        _check(self, name, x, state, mask, ("rows", "positions"))
        _inside.now = True
        try:
            y, state = function(self, x, state, mask=mask)
        finally:
            _inside.now = False
        return y, state if torch.is_grad_enabled() else owned(state)

    return whole


def weight_of(module: Any) -> Tensor:
    """The weight of a module that is not called."""
    if module._forward_pre_hooks:
        make_weights(module)
    weight: Tensor = module.weight
    return weight


def make_weights(module: nn.Module) -> None:
    """Calls the hooks of torch that make a weight of others: for pruning, and for weight normalization."""
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__ in WEIGHT_HOOKS:
            hook(module, ())


def guarded_start(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, the `init_state` of a layer, with a check of the memory before it."""

    @wraps(function)
    def init_state(self: Any, batch_size: int, memory: Any = None) -> Any:
        if memory is None or self.d_memory is None or _inside.now or is_transformed():
            return function(self, batch_size, memory)
        expect_memory(self, batch_size, memory)
        _inside.now = True
        try:
            return function(self, batch_size, memory)
        finally:
            _inside.now = False

    return init_state


def guarded_update(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, the `update` of a pooling from a state and a segment h to a state, with a check before it."""

    @wraps(function)
    def update(self: Any, state: Any, h: Any, mask: Any = None) -> Any:
        if not is_transformed():
            _check(self, "update", h, state, mask, ("rows", "positions"))
        return function(self, state, h, mask)

    return update


def guarded_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, the `result` of a pooling from a state, with a check before it."""

    @wraps(function)
    def result(self: Any, state: Any) -> Any:
        if not is_transformed():
            rows = next((leaf.shape[0] for leaf in leaves(state) if leaf.dim()), 0)
            expect_state(self, f"{type(self).__name__}.result", "state", state, rows, lambda: self.init_state(1))
        return function(self, state)

    return result


def _check(module: nn.Module, name: str, x: Any, state: Any, mask: Any, before: tuple[str, ...]) -> None:
    border = _borders.get(module)
    if border is None or border.misfit(x, state, mask, before) is not None:
        _borders[module] = border = Border(module)  # the module may have changed
        found = border.misfit(x, state, mask, before)
        if found is not None:
            what, reason = found
            raise reason.error(f"{type(module).__name__}.{name}", what)


def expect(where: str, what: str, tensor: Any, sizes: Sizes, dtype: Any = None, *, like: Tensor | None = None) -> None:
    """Raise unless `tensor` has these sizes, this type (None: any real numbers) and the device of `like`.

    Sizes behind `...` are the last ones.
    """
    if sizes[:1] == (...,):
        others = tensor.dim() - len(sizes) + 1 if isinstance(tensor, Tensor) else 0
        sizes = (*[ANY] * max(others, 0), *sizes[1:])
    found = misfit(tensor, sizes, dtype, None if like is None else like.device)
    if found is not None:
        raise found.error(where, what)


def misfit(found: Any, sizes: Sizes, dtype: Any, device: torch.device | None) -> Misfit | None:
    """How a tensor differs from what is expected. `dtype` is a type, `int` for whole numbers, or None for real ones."""
    if not isinstance(found, Tensor):
        return Misfit(TypeError, "{} as a tensor", _named(found))
    shape = found.shape
    if shape != sizes and not (len(shape) == len(sizes) and all(map(_fits, shape, sizes))):
        return Misfit(ValueError, f"{{}} of {_written(sizes)}", _written(shape))
    if found.dtype is not dtype and not _is_of(found, dtype):
        wanted = {None: "of real numbers", int: "of whole numbers"}.get(dtype, f"in {dtype}")
        return Misfit(TypeError, f"{{}} {wanted}", found.dtype)
    if device is not None and found.device != device:
        return Misfit(TypeError, f"{{}} on {device}", found.device)
    return None


def expect_mask(where: str, mask: Any, like: Tensor, what: str = "mask") -> None:
    """Raises unless `mask` is None or a right padding of `like` (B, T, ...)."""
    if mask is not None:
        found = misfit(mask, like.shape[:2], torch.bool, like.device) or _gap(mask)
        if found is not None:
            raise found.error(where, what)


def expect_memory(module: Any, rows: int, memory: Any) -> None:
    """Raises unless `memory` is one for `rows` rows of a module with `d_memory`, in its type and on its device."""
    where = f"{type(module).__name__}.init_state"
    if not isinstance(memory, Memory):
        raise Misfit(TypeError, "{} as Memory", _named(memory)).error(where, "memory")
    held, name = _reference(module)
    like = held.get(name)
    sizes = (rows, "positions", module.d_memory)
    expect(where, "memory.values", memory.values, sizes, None if like is None else like.dtype, like=like)
    expect_mask(where, memory.mask, memory.values, "memory.mask")


def expect_state(module: Any, where: str, what: str, state: Any, rows: int, start: Callable[[], State]) -> None:
    """Raises unless `state`, for `rows` rows, has the form of what `start` gives, an initial state of a module."""
    like = _starts.get(module, ...)
    if like is ... or misfit_of_state(state, like, rows) is not None:
        _starts[module] = like = detach(start())  # the module may have changed
        found = misfit_of_state(state, like, rows)
        if found is not None:
            raise found.error(where, what)


def expect_words(where: str, ids: Any, mask: Tensor | None) -> None:
    """Raises unless `ids` and `mask` are (words, characters)."""
    expect(where, "ids", ids, ("words", "characters"), int)
    expect_mask(where, mask, ids)


def _gap(mask: Tensor) -> Misfit | None:
    """The misfit of a mask whose real positions do not come first in each row."""
    if _inside.now or is_transformed() or not bool((mask[:, 1:] > mask[:, :-1]).any()):
        return None
    row = int((mask[:, 1:] > mask[:, :-1]).any(1).nonzero()[0])
    return Misfit(ValueError, "{} whose real positions come first", f"others in row {row}")


def _is_of(found: Tensor, dtype: Any) -> bool:
    """Whether the numbers are of the type `dtype`, or of a type that autocast turns it into."""
    if dtype is int:
        return found.dtype in (torch.int32, torch.int64)
    if dtype is None or not dtype.is_floating_point:
        return dtype is None and found.is_floating_point()
    kind = found.device.type
    return torch.is_autocast_enabled(kind) and found.dtype in (torch.get_autocast_dtype(kind), torch.float32)


def _reference(module: nn.Module) -> tuple[dict[str, Tensor | None], str]:
    """The dict and the name of the tensor that has a module's type and device: its first parameter, else buffer.

    What belongs to a part that `takes_any_type` does not count.
    """
    for kind in ("_parameters", "_buffers"):
        for part in (part for part in module.modules() if not getattr(part, "takes_any_type", False)):
            for name, tensor in getattr(part, kind).items():
                if tensor is not None and tensor.is_floating_point():
                    return getattr(part, kind), name
    return {}, ""


def _fits(size: int, wanted: object) -> bool:
    return isinstance(wanted, str) or size == wanted


def _written(sizes: Sizes) -> str:
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"


def _named(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def expect_targets(where: str, targets: Tensor, shape: tuple[int, ...], like: Tensor, words: int) -> None:
    """Raises `ValueError` for targets of another shape or without a word: torch ignores -100 in some functions alone.

    The numbers are checked on a CPU. A GPU would wait for the answer, and has assertions.
    """
    expect(where, "targets", targets, shape, torch.int64, like=like)
    if targets.device.type != "cpu" or is_transformed() or targets.numel() == 0:
        return
    least, most = map(int, targets.aminmax())
    if least < 0 or most >= words:
        raise ValueError(f"{where}: targets should be from 0 to {words - 1}, found {least if least < 0 else most}")
