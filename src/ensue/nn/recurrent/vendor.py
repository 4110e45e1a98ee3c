"""Torch's fused recurrent kernels (oneDNN, cuDNN and their fall-backs) with the contract of a layer.

The `forward` of an LSTM, GRU or Elman layer calls these functions. They compute what `step` computes. On a CPU without
products in bfloat16, where oneDNN refuses its kernels in that type, they compute in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ensue.engine import folds, has_bfloat16, runs_compiled
from ensue.nn.layer import Recurrent, blank
from ensue.nn.taps import is_watched
from ensue.types import hold

# Weights are separate tensors, since WeightDrop replaces them for a call. cuDNN copies them into one piece at each call
# and warns each time; the copy takes little time beside the product.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


CUT_COST = 1 << 25
"""Multiplications (positions of padding × weights) that a cut has to save to be worth another call (LOG.md)."""

HOLD = 1e4
"""A pre-activation at which a gate is exactly 1, or with a minus sign 0, in every precision."""

Kernel: TypeAlias = Callable[..., Any]
Run: TypeAlias = tuple[Tensor, list[Tensor]]
"""The outputs (B, T, d) and the final leaves (B, d) of the state."""


def takes_kernel(layer: Recurrent, step: Kernel, x: Tensor) -> bool:
    """Whether `layer` takes the kernel for the function `step` to read `x`.

    It does if that is its own `step`, no tap is watched, nobody asks for a fold, and the engine has no compiled code.
    """
    return type(layer).step is step and not is_watched(layer) and not folds() and not runs_compiled(layer, x)


def run_kernel(
    kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None
) -> Run:
    """One layer of `kernel` (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu) over `x` (B, T, d_in).

    `state` are the (B, d) leaves, `weights` are W, U and the two biases as torch stacks them. Returns the outputs
    (B, T, d) and the final (B, d) leaves, each row's after its last real position.
    """
    if x.shape[0] == 0 or x.shape[1] == 0:
        return x.new_zeros(x.shape[0], x.shape[1], state[0].shape[1]), list(state)
    x = blank(x, mask)
    if mask is None or bool(mask.all()):
        return _run_dense(kernel, x, state, weights)
    run_ragged = _run_blocks if x.device.type == "cpu" else _run_packed
    y, after = run_ragged(kernel, x, state, weights, mask)
    return blank(y, mask), after


def _options() -> tuple[bool, int, float, bool, bool]:
    """Biases, layers, dropout, whether to keep values for a backward pass, both ways. cuDNN does not ask autograd."""
    return True, 1, 0.0, torch.is_grad_enabled(), False


def _run_dense(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> Run:
    """Every position of every row, padding or not."""
    dtype = weights[0].dtype
    in_half = dtype == torch.bfloat16 or (dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
    if in_half and x.device.type == "cpu" and not has_bfloat16():
        with torch.autocast("cpu", enabled=False):
            x, *others = (part.to(dtype).float() for part in (x, *state, *weights))
            y, after = _run_dense(kernel, x, others[: len(state)], others[len(state) :])
        return y.to(dtype), [leaf.to(dtype) for leaf in after]
    before = [leaf.unsqueeze(0) for leaf in state]
    y, *after = kernel(x, before if len(before) > 1 else before[0], weights, *_options(), True)
    return y, [leaf.squeeze(0) for leaf in after]


def _run_blocks(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Run:
    """Ragged rows on a CPU, where torch has no fused kernel for packed rows: dense calls over blocks of rows.

    The rows are sorted, the longest first. All run together up to some length, then the longer ones without the others.
    Padding within a block is computed and changes nothing: h is read at each row's last position, and the cell of an
    LSTM is held.
    """
    if len(state) > 1:
        x, weights = _holding(x, weights, mask)
    lengths = mask.sum(1).clamp(min=1)  # a row without a real position computes a padded one
    size = weights[0].numel() + weights[1].numel()
    rows = lengths.argsort(descending=True)
    falling = lengths[rows].tolist()
    ends = block_ends(falling[::-1], size)
    if len(ends) == 1:
        y, after = _run_dense(kernel, x[:, : ends[0]], state, weights)
    else:
        sorted_state = [leaf[rows] for leaf in state]
        counts = [sum(length > begin for length in falling) for begin in [0, *ends[:-1]]]
        y, after = _run_sorted_blocks(kernel, x[rows], sorted_state, weights, ends=ends, counts=counts)
        back = rows.argsort()
        y, after = y[back], [leaf[back] for leaf in after]
    last = y.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, y.shape[2])).squeeze(1)
    h = torch.where(mask[:, :1], last, state[0])
    return F.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])), [h, *after[1:]]


def _run_sorted_blocks(
    kernel: Kernel,
    x: Tensor,
    state: list[Tensor],
    weights: Sequence[Tensor],
    *,
    ends: list[int],
    counts: list[int],
) -> Run:
    """Sorted rows, block by block: a block ends at a position of `ends` and has the first `counts` rows."""
    pieces, finished = [], []
    for begin, end, count, following in zip([0, *ends], ends, counts, [*counts[1:], 0], strict=False):
        y, state = _run_dense(kernel, x[:count, begin:end], state, weights)
        pieces.append(F.pad(y, (0, 0, 0, 0, 0, len(x) - count)))
        finished.append([leaf[following:] for leaf in state])
        state = [leaf[:following] for leaf in state]
    return torch.cat(pieces, dim=1), [torch.cat(leaves[::-1]) for leaves in zip(*finished, strict=True)]


def _holding(x: Tensor, weights: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, list[Tensor]]:
    """An LSTM's input and W with one more feature, which at padding closes the input gate and opens the forget gate.

    So at padding c' = 1 c + 0 g, exactly.
    """
    W, *others = weights
    column = W.new_zeros(4, len(W) // 4)
    column[0], column[1] = -HOLD, HOLD
    return torch.cat((x, (~mask).unsqueeze(-1).to(x.dtype)), dim=-1), [torch.cat((W, column.view(-1, 1)), 1), *others]


def block_ends(lengths: list[int], size: int) -> list[int]:
    """The positions at which blocks end, ascending. `lengths` ascend, and the last position is the largest of them.

    A cut saves the padding of the rows that end there, times the `size` of the weights, and costs a call.
    """
    saved, count = max((count * (lengths[-1] - length), count) for count, length in enumerate(lengths, 1))
    if saved * size <= CUT_COST:
        return lengths[-1:]
    return block_ends(lengths[:count], size) + block_ends(lengths[count:], size)


def _run_packed(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Run:
    """Ragged rows on other devices. A row without a real position reads one zero vector; its state is restored."""
    lengths = mask.sum(1)
    packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    assert packed.sorted_indices is not None
    assert packed.unsorted_indices is not None
    before = [leaf[packed.sorted_indices].unsqueeze(0) for leaf in state]
    data, *after = kernel(
        packed.data, packed.batch_sizes, before if len(before) > 1 else before[0], weights, *_options()
    )
    outputs = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    y, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    final = tuple(leaf.squeeze(0)[packed.unsorted_indices] for leaf in after)
    return y, list(hold(lengths > 0, final, tuple(state)))
