"""Tensors as C sees them: the memory behind them, and whether torch records or transforms what is done with them.

Where something records or transforms operations, layers run in torch operations alone. `is_transformed` is the place
that asks. A backward pass of our own that has to have a history gives way to a reference under autograd.

C checks nothing and what a layer holds may be changed at any time, so the last moment before a call is the one at which
to look. What does not fit is a `ValueError` or, of another type or device, a `TypeError`, with the name of the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ensue.engine.program import Array


def is_transformed() -> bool:
    """Whether torch records or transforms operations: `torch.compile`, `torch.export`, `torch.jit.trace`, `make_fx` and
    other dispatch modes, `torch.func`, forward-mode differentiation.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or _get_current_dispatch_mode() is not None
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def needs_history(errors: Sequence[Tensor | None]) -> bool:
    """In a backward pass from `errors`: whether its results are differentiated (`create_graph=True`) or transformed.

    The batched gradients of `torch.autograd.grad` are no transform of `torch.func`: they are tensors without storage.
    """
    batched = any(error is not None and not torch._C._has_storage(error) for error in errors)
    return batched or torch.is_grad_enabled() or is_transformed()


def gradients_of(
    reference: Callable[..., Any], tensors: Sequence[Tensor], errors: Sequence[Any]
) -> list[Tensor | None]:
    """The gradients of `reference(*tensors)` for the errors at its results, which may be differentiated again.

    None for a tensor that needs none.
    """
    device = tensors[0].device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        # Views, since one tensor may depend on another.
        views = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in tensors]
        results = reference(*views)
        results = results if isinstance(results, tuple) else (results,)
        pairs = [(y, error) for y, error in zip(results, errors, strict=True) if y.requires_grad and error is not None]
        wanted = [view for view in views if view.requires_grad]
        found = (
            torch.autograd.grad(
                [y for y, _ in pairs], wanted, [error for _, error in pairs], create_graph=True, allow_unused=True
            )
            if pairs
            else [None] * len(wanted)
        )
    gradients = iter(found)
    return [next(gradients) if view.requires_grad else None for view in views]


BAD_LENGTH, GAP = 2048, 64
"""Bytes. Rows as long as a multiple of the first get a gap of the second: a column of them would share few sets of a
processor's cache."""
CACHE = 1 << 20
"""Bytes of the large states of one row at some positions, which stay in the cache of a core."""


def room(like: Tensor, rows: int, width: int) -> Tensor:
    """A tensor (rows, width) of any content, of the type and on the device of `like`; features lie side by side."""
    is_bad = like.is_cpu and width * like.element_size() % BAD_LENGTH == 0
    gap = GAP // like.element_size() if is_bad else 0
    return like.new_empty(rows, width + gap)[:, :width]


SMALL = 1 << 18
"""Bytes. To copy fewer takes no more time than to write behind them."""
ALIGNED = 64
"""Bytes. The order of a kernel's sums depends on where a head begins, so a position has to be a multiple of these."""


def appended(old: Tensor, new: Tensor, *, dim: int) -> Tensor:
    """`old` and `new`, one after the other along `dim`. Without gradients it copies `old` only if no room is free.

    A large result is the beginning of a buffer of at most twice its size. The first continuation of it, in any thread,
    claims the room behind it; later ones copy, so that none changes the numbers of another.
    """
    before, count = old.shape[dim], new.shape[dim]
    length = before + count
    is_aligned = not old.is_floating_point() or math.prod(old.shape[dim + 1 :]) * old.element_size() % ALIGNED == 0
    size = 2 * length if old.nbytes >= SMALL and is_aligned else 0
    is_plain = not torch.is_grad_enabled() and not is_transformed() and old.dtype is new.dtype and len(old) == len(new)
    if size < length or not is_plain:
        return torch.cat((old, new), dim=dim) if before else new
    buffer = getattr(old, "room", {}).pop("buffer", None)  # in one step, which no other thread comes between
    if buffer is None or buffer.shape[dim] < length or buffer.is_inference() != torch.is_inference_mode_enabled():
        buffer = old.new_empty((*old.shape[:dim], size, *old.shape[dim + 1 :]))
        buffer.narrow(dim, 0, before).copy_(old)
    buffer.narrow(dim, before, count).copy_(new)
    result: Tensor = buffer.data.narrow(dim, 0, length)  # of its own version: it does not change with what is behind it
    vars(result)["room"] = {"buffer": buffer}
    return result


@dataclass(frozen=True)
class Storage:
    """A tensor (rows, width) whose features lie side by side."""

    tensor: Tensor
    start: Tensor | None = None
    """The values at the position before the first, (B, width)."""
    is_ring: bool = False
    """Whether it has room for two positions only, which take turns."""
    buffer: Tensor | None = None
    """For a state that is kept at few positions, room for those between (workers · every · block, width)."""


def of_chunk(width: int, itemsize: int) -> tuple[int, int]:
    """How many positions of states of this width are one chunk, whose last one is kept; and how many rows at a time."""
    every = min(max(CACHE // (width * itemsize), 4), 32)
    return every, max(1, CACHE // (every * width * itemsize))


Arrays = dict[Array, Storage]
Finals = Sequence[tuple[Array, Tensor]]
"""Arrays of states, and where those of rows that end are put, (B, width)."""
Between = Callable[[int], None]
"""A call after each position of a forward pass, and before each of a backward pass, with the position's number."""


def address(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a tensor of these sizes without gaps."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is expected without gaps, found strides {tensor.stride()}")
    return tensor.data_ptr()


def address_of_matrix(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a matrix of these sizes and of any strides."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    return tensor.data_ptr()


def address_of_rows(name: str, tensor: Tensor, dtype: torch.dtype, rows: int, width: int) -> int:
    """Of (rows or more, width) numbers, those of a row side by side."""
    shape = tensor.shape
    _check(name, tensor, dtype, (rows, width), len(shape) == 2 and shape[0] >= rows and shape[1] == width)
    if width > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name} is expected with features side by side, found strides {tensor.stride()}")
    return tensor.data_ptr()


def _check(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int], has_sizes: bool) -> None:
    if not has_sizes:
        raise ValueError(f"{name} is expected as {tuple(sizes)}, found {tuple(tensor.shape)}")
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
        found = f"{tensor.dtype} on {tensor.device}{' with its sign to be turned' * tensor.is_neg()}"
        raise TypeError(f"{name} is expected in {dtype} on cpu, found {found}")
