"""Torch's fused recurrent kernels (oneDNN, cuDNN and their fallbacks), for rows of different lengths.

The method `kernel` of LSTM, GRU and Elman layers calls these kernels. oneDNN does not support bfloat16 on a CPU without
bfloat16 instructions; there the kernels compute in float32.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ensue.engine import has_bfloat16
from ensue.nn.layer import mask_padding
from ensue.types import hold

SATURATED = 1e4
"""A pre-activation for which a sigmoid is exactly 1 in every precision, and exactly 0 for its negative."""

Kernel: TypeAlias = Callable[..., Any]
Results: TypeAlias = tuple[Tensor, list[Tensor]]
"""The outputs (B, T, d) and the tensors (B, d) of the final state."""


def run_kernel(
    kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None
) -> Results:
    """Run one layer of `kernel` (torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu) over `x` (B, T, d_in).

    `state` has (B, d) leaves. `weights` are W, U and two biases, stacked as in torch. Returns the outputs (B, T, d) and
    the leaves (B, d) of the state after the last real position of each row.
    """
    if x.shape[0] == 0 or x.shape[1] == 0:
        return x.new_zeros(x.shape[0], x.shape[1], state[0].shape[1]), list(state)
    x = mask_padding(x, mask)
    dtype = weights[0].dtype
    in_half = dtype == torch.bfloat16 or (dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
    if in_half and x.device.type == "cpu" and not has_bfloat16():
        with torch.autocast("cpu", enabled=False):
            x, *tensors = (tensor.to(dtype).float() for tensor in (x, *state, *weights))
            y, after = _run(kernel, x, tensors[: len(state)], tensors[len(state) :], mask)
        return y.to(dtype), [leaf.to(dtype) for leaf in after]
    return _run(kernel, x, state, weights, mask)


def _run(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None) -> Results:
    if x.device.type == "cuda":
        # cuDNN warns at each call that it copies separate weights into one block of memory. Weights are separate, since
        # WeightDrop replaces them during a call. The copy takes little time compared to the product.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            return _run_rows(kernel, x, state, weights, mask)
    return _run_rows(kernel, x, state, weights, mask)


def _run_rows(
    kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None
) -> Results:
    """Run all rows: packed on a GPU, and padded on a CPU, where torch's kernel for packed rows is slower (docs/log)."""
    if mask is None or bool(mask.all()):
        return _run_dense(kernel, x, state, weights)
    y, after = (_run_padded if x.device.type == "cpu" else _run_packed)(kernel, x, state, weights, mask)
    return mask_padding(y, mask), after


def _options() -> tuple[bool, int, float, bool, bool]:
    """Return has_biases, num_layers, dropout, train (which cuDNN needs for gradients) and bidirectional."""
    return True, 1, 0.0, torch.is_grad_enabled(), False


def _run_dense(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> Results:
    before = [leaf.unsqueeze(0) for leaf in state]
    y, *after = kernel(x, before if len(before) > 1 else before[0], weights, *_options(), True)
    return y, [leaf.squeeze(0) for leaf in after]


def _run_padded(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Results:
    """Run padded rows, and gather h at the last real position. An added feature sets i = 0 and f = 1 at padding."""
    if len(state) > 1:
        W, *others = weights
        column = W.new_zeros(4, len(W) // 4)
        column[0], column[1] = -SATURATED, SATURATED
        x = torch.cat((x, (~mask).unsqueeze(-1).to(x.dtype)), dim=-1)
        weights = [torch.cat((W, column.view(-1, 1)), 1), *others]
    y, after = _run_dense(kernel, x, state, weights)
    last = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, y.shape[2])
    return y, [torch.where(mask[:, :1], y.gather(1, last).squeeze(1), state[0]), *after[1:]]


def _run_packed(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Results:
    """Run packed rows. A row without real positions reads one zero vector, and its state is restored afterwards."""
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
