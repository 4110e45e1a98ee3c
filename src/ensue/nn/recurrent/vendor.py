"""Torch's fused recurrent kernels (oneDNN, cuDNN and their fall-backs) with the contract of a layer.

The `kernel` of an LSTM, GRU or Elman layer calls these functions. They compute what `step` computes. On a CPU without
products in bfloat16, where oneDNN refuses its kernels in that type, they compute in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ensue.engine import has_bfloat16
from ensue.nn.layer import blank
from ensue.types import hold

HOLD = 1e4
"""A pre-activation at which a gate is exactly 1, or with a minus sign 0, in every precision."""

Kernel: TypeAlias = Callable[..., Any]
Run: TypeAlias = tuple[Tensor, list[Tensor]]
"""The outputs (B, T, d) and the final leaves (B, d) of the state."""


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
    dtype = weights[0].dtype
    in_half = dtype == torch.bfloat16 or (dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
    if in_half and x.device.type == "cpu" and not has_bfloat16():
        with torch.autocast("cpu", enabled=False):
            x, *others = (part.to(dtype).float() for part in (x, *state, *weights))
            y, after = _run(kernel, x, others[: len(state)], others[len(state) :], mask)
        return y.to(dtype), [leaf.to(dtype) for leaf in after]
    return _run(kernel, x, state, weights, mask)


def _run(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None) -> Run:
    """All rows at once. On a CPU, torch's kernel for packed rows is slower than padding (docs/log)."""
    if x.device.type == "cuda":
        # Weights are separate tensors, since WeightDrop replaces them for a call. cuDNN copies them into one piece at
        # each call and warns each time; the copy takes little time beside the product.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            return _run_rows(kernel, x, state, weights, mask)
    return _run_rows(kernel, x, state, weights, mask)


def _run_rows(
    kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor | None
) -> Run:
    if mask is None or bool(mask.all()):
        return _run_dense(kernel, x, state, weights)
    run_ragged = _run_padded if x.device.type == "cpu" else _run_packed
    y, after = run_ragged(kernel, x, state, weights, mask)
    return blank(y, mask), after


def _options() -> tuple[bool, int, float, bool, bool]:
    """Biases, layers, dropout, whether to keep values for a backward pass, both ways. cuDNN does not ask autograd."""
    return True, 1, 0.0, torch.is_grad_enabled(), False


def _run_dense(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> Run:
    """Every position of every row, padding or not."""
    before = [leaf.unsqueeze(0) for leaf in state]
    y, *after = kernel(x, before if len(before) > 1 else before[0], weights, *_options(), True)
    return y, [leaf.squeeze(0) for leaf in after]


def _run_padded(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Run:
    """Rows of different lengths with their padding, which changes nothing: h is read at each row's last position.

    The input and W of an LSTM get one more feature, which at padding closes the input gate and opens the forget gate,
    so that c' = 1 c + 0 g exactly.
    """
    if len(state) > 1:
        W, *others = weights
        column = W.new_zeros(4, len(W) // 4)
        column[0], column[1] = -HOLD, HOLD
        x = torch.cat((x, (~mask).unsqueeze(-1).to(x.dtype)), dim=-1)
        weights = [torch.cat((W, column.view(-1, 1)), 1), *others]
    y, after = _run_dense(kernel, x, state, weights)
    last = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, y.shape[2])
    return y, [torch.where(mask[:, :1], y.gather(1, last).squeeze(1), state[0]), *after[1:]]


def _run_packed(kernel: Kernel, x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], mask: Tensor) -> Run:
    """On other devices. A row without a real position reads one zero vector, and its state is restored."""
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
