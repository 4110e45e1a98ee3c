"""The memory of tensors: sizes, addresses for C, growing buffers, and the packing of rows of different lengths.

While torch records or transforms operations (`is_transformed`), layers run in torch operations alone. If the result of
a backward pass in C has to be differentiated again, a reference under autograd replaces the pass.

C code checks no arguments, and a layer's tensors may change at any time. So arguments are checked right before each
call: a wrong size or layout raises ValueError, a wrong type or device TypeError, with the name of the array.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ensue.engine.program import Array


def is_transformed() -> bool:
    """Return whether torch compiles, exports, traces, dispatches to a mode, or transforms operations (`torch.func`)."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or _get_current_dispatch_mode() is not None
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def needs_history(errors: Sequence[Tensor | None]) -> bool:
    """Return whether the results of a backward pass from `errors` (loss gradients) are differentiated or transformed.

    Batched errors (`is_grads_batched` of `torch.autograd.grad`) have no storage, and torch reports no transform.
    """
    are_batched = any(error is not None and not torch._C._has_storage(error) for error in errors)
    return are_batched or torch.is_grad_enabled() or is_transformed()


def gradients_of(
    reference: Callable[..., Any], tensors: Sequence[Tensor], errors: Sequence[Any]
) -> list[Tensor | None]:
    """Return the differentiable gradients of `tensors`, given the loss gradients `errors` of `reference(*tensors)`.

    The gradient of a tensor is None if the tensor requires no gradient or does not affect the results.
    """
    device = tensors[0].device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        # Views, since one tensor may depend on another.
        views = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in tensors]
        results = reference(*views)
        results = results if isinstance(results, tuple) else (results,)
        pairs = [(y, error) for y, error in zip(results, errors, strict=True) if y.requires_grad and error is not None]
        sources = [view for view in views if view.requires_grad]
        if not pairs:
            return [None] * len(views)
        ys, errors = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(ys, sources, errors, create_graph=True, allow_unused=True))
    return [next(gradients) if view.requires_grad else None for view in views]


CONFLICT_BYTES, GAP_BYTES = 2048, 64
"""Rows of a multiple of CONFLICT_BYTES have gaps of GAP_BYTES; without gaps, a column would use few cache sets."""
CACHE_BYTES = 1 << 20
"""The desired size of the states at all positions and rows of a chunk, which then stay in the cache of a core."""


def empty_rows(like: Tensor, rows: int, width: int) -> Tensor:
    """Return an uninitialized tensor (rows, width) of the type and device of `like`, with contiguous features."""
    needs_gap = like.is_cpu and width * like.element_size() % CONFLICT_BYTES == 0
    return like.new_empty(rows, width + (GAP_BYTES // like.element_size() if needs_gap else 0))[:, :width]


MIN_BUFFER_BYTES = 1 << 18
"""Smaller tensors have no buffer, since copying them takes little time."""
ALIGNED_BYTES = 64
"""The alignment of each position in a buffer, in bytes, since the order of a kernel's sums depends on the alignment."""


def appended(old: Tensor, new: Tensor, *, dim: int) -> Tensor:
    """Return the concatenation of `old` and `new` along `dim`; without gradients, `old` is usually not copied.

    A large result is a view of the first positions of a buffer, which is at most twice as large. The first call that
    appends to the result, in any thread, writes to the free part of the buffer. Later calls that append to the same
    result copy it, so results do not change.
    """
    before, count = old.shape[dim], new.shape[dim]
    length = before + count
    position_bytes = math.prod(old.shape[dim + 1 :]) * old.element_size()
    is_aligned = not old.is_floating_point() or position_bytes % ALIGNED_BYTES == 0
    size = 2 * length if old.nbytes >= MIN_BUFFER_BYTES and is_aligned else 0
    is_plain = not torch.is_grad_enabled() and not is_transformed() and old.dtype is new.dtype and len(old) == len(new)
    if size < length or not is_plain:
        return torch.cat((old, new), dim=dim) if before else new
    buffer = getattr(old, "room", {}).pop("buffer", None)  # `pop` is atomic, so only one thread gets the buffer
    if buffer is None or buffer.shape[dim] < length or buffer.is_inference() != torch.is_inference_mode_enabled():
        buffer = old.new_empty((*old.shape[:dim], size, *old.shape[dim + 1 :]))
        buffer.narrow(dim, 0, before).copy_(old)
    buffer.narrow(dim, before, count).copy_(new)
    # `data`, since autograd would count later writes to the buffer as changes of the result.
    result: Tensor = buffer.data.narrow(dim, 0, length)
    vars(result)["room"] = {"buffer": buffer}
    return result


class Storage(NamedTuple):
    """A tensor (rows, width) with contiguous features."""

    tensor: Tensor
    start: Tensor | None = None
    """The values at the position before the first, (B, width)."""
    is_ring: bool = False
    """Whether the tensor stores only two positions: position t is in slot t mod 2."""
    buffer: Tensor | None = None
    """For a state that is stored at one position of each chunk, the values at all positions of the chunks that threads
    compute, (workers · chunk positions · chunk rows, width)."""


def chunk_sizes(width: int, itemsize: int) -> tuple[int, int]:
    """Return the number of positions in a chunk, and the number of rows that are computed together.

    Only the state at the last position of a chunk is stored.
    """
    positions = min(max(CACHE_BYTES // (width * itemsize), 4), 32)
    return positions, max(1, CACHE_BYTES // (positions * width * itemsize))


Arrays = dict[Array, Storage]
Finals = Sequence[tuple[Array, Tensor]]
"""The array of each state, and the tensor (B, width) to which its final values are written."""
PassCallback = Callable[[int], None]
"""A function that is called with each position: after the position in a forward pass, before it in a backward pass."""


def address(name: object, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int], *, strided: bool = False) -> int:
    """Return the address of a tensor of these sizes, which has to be contiguous unless `strided` allows any strides."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    if not strided and not tensor.is_contiguous():
        raise ValueError(f"{name} should be contiguous, found strides {tensor.stride()}")
    return tensor.data_ptr()


def address_of_rows(name: object, tensor: Tensor, dtype: torch.dtype, rows: int, width: int) -> int:
    """Return the address of a tensor of `rows` or more rows with `width` contiguous features."""
    shape = tensor.shape
    _check(name, tensor, dtype, (rows, width), len(shape) == 2 and shape[0] >= rows and shape[1] == width)
    if width > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name} should have contiguous features, found strides {tensor.stride()}")
    return tensor.data_ptr()


def _check(name: object, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int], has_sizes: bool) -> None:
    if not has_sizes:
        raise ValueError(f"{name} is expected as {tuple(sizes)}, found {tuple(tensor.shape)}")
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
        actual = f"{tensor.dtype} on {tensor.device}{' with a lazy negative sign' * tensor.is_neg()}"
        raise TypeError(f"{name} is expected in {dtype} on cpu, found {actual}")


class Packing:
    """The packing of `batch` rows of at most `positions` positions, without padding, into N rows of features.

    Rows are sorted, the longest first. The packing has the first positions of all rows, then the second positions of
    all rows with two or more, and so on. So padding takes no time, and rows that have not ended come first.
    """

    def __init__(self, batch: int, positions: int, mask: Tensor | None) -> None:
        self.batch, self.padded = batch, positions
        self.order: Tensor | None = None
        if mask is None:
            self.counts = np.full(positions, batch, dtype=np.int64)
        else:
            lengths = mask.sum(1)
            self.order = lengths.argsort(descending=True, stable=True)
            self.lengths = lengths[self.order]
            # From lengths, not the mask, since loops over positions need counts that never rise.
            ends = np.bincount(lengths.cpu().numpy(), minlength=1)
            self.counts = (batch - np.cumsum(ends))[:-1].astype(np.int64)
        self.begins: NDArray[np.int64] = np.concatenate(([0], np.cumsum(self.counts)))[:-1].astype(np.int64)
        self.size = int(self.counts.sum())
        self.addresses = self.counts.ctypes.data, self.begins.ctypes.data

    @classmethod
    def of(cls, x: Tensor, mask: Tensor | None) -> "Packing":
        """Return the packing of x (B, T, d); a mask that is True everywhere counts as None."""
        batch, positions, _ = x.shape
        if mask is None or bool(mask.all()):
            return unmasked_packing(batch, positions, None)
        return cls(batch, positions, mask)

    def packed(self, x: Tensor) -> Tensor:
        """Pack (B, T, d) into (N, d)."""
        if self.order is None:
            return (x if 1 in (self.batch, self.padded) else x.transpose(0, 1)).flatten(0, 1)
        return x[self._rows_and_positions]

    def unpacked(self, packed: Tensor) -> Tensor:
        """Unpack (N, d) into (B, T, d), with zeros at padding."""
        if self.order is None:
            return packed.unsqueeze(0) if self.batch == 1 else packed.view(self.padded, self.batch, -1).transpose(0, 1)
        padded = packed.new_zeros(self.batch, self.padded, packed.shape[1])
        return padded.index_put(self._rows_and_positions, packed)

    def sorted(self, leaf: Tensor) -> Tensor:
        """Return (B, d) in the order of the packing."""
        return leaf if self.order is None else leaf[self.order]

    def unsorted(self, leaf: Tensor) -> Tensor:
        """Return (B, d) in the order of the batch, given (B, d) in the order of the packing."""
        return leaf if self.order is None else leaf[self.order.argsort()]

    @cached_property
    def _rows_and_positions(self) -> tuple[Tensor, Tensor]:
        assert self.order is not None
        position, rank = self._positions_and_ranks
        return self.order[rank], position

    @cached_property
    def _positions_and_ranks(self) -> tuple[Tensor, Tensor]:
        """The position of each of the N packed rows, and its rank among the rows sorted by length."""
        assert self.order is not None
        is_real = torch.arange(len(self.counts), device=self.order.device).unsqueeze(1) < self.lengths
        position, rank = is_real.nonzero(as_tuple=True)
        return position, rank

    @cached_property
    def before(self) -> Tensor | slice:
        """The packed index of the same row at the position before, for each packed row after the first position."""
        if self.order is None:
            return slice(0, self.size - self.batch if self.size else 0)
        first = int(self.counts[0]) if len(self.counts) else 0
        begins = torch.from_numpy(self.begins).to(self.order.device)
        position, rank = (indices[first:] for indices in self._positions_and_ranks)
        return begins[position - 1] + rank


unmasked_packing = lru_cache(Packing)
