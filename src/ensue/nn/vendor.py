"""Torch's fused recurrent kernels (oneDNN, cuDNN and their fall-backs) behind the contract of a layer.

Not a layer: a function that an LSTM, GRU or Elman layer calls in `forward`, where the arithmetic is that of its `step`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ensue.nn.layer import blank
from ensue.types import hold

# Our weights are separate tensors, since a layer may be handed others for one call (WeightDrop); cuDNN then copies them
# into one piece at each call, which costs little beside the product itself, and says so each time.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


def run_kernel(
    kernel: Callable[..., Any],
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    mask: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """One layer of `kernel` (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu) over `x` (B, T, d_in).

    `state` are the (B, d) leaves, `weights` are W, U and the two biases as torch stacks them. Returns the outputs
    (B, T, d) and the final (B, d) leaves, each row's after its last real position.
    """
    if x.shape[0] == 0 or x.shape[1] == 0:
        return x.new_zeros(x.shape[0], x.shape[1], state[0].shape[1]), list(state)
    x = blank(x, mask)
    # Biases, layers, dropout, whether to keep what a backward pass needs (cuDNN goes by this, not by autograd),
    # bidirectional.
    options = (True, 1, 0.0, torch.is_grad_enabled(), False)
    if mask is None or bool(mask.all()):
        before = [leaf.unsqueeze(0) for leaf in state]
        y, *after = kernel(x, before if len(before) > 1 else before[0], weights, *options, True)
        return y, [leaf.squeeze(0) for leaf in after]
    return _run_packed(kernel, x, state, weights, mask=mask, options=options)


def _run_packed(
    kernel: Callable[..., Any],
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    *,
    mask: Tensor,
    options: tuple[Any, ...],
) -> tuple[Tensor, list[Tensor]]:
    """Ragged rows. A row without a real position reads one zero vector, and its state is put back afterwards."""
    lengths = mask.sum(1)
    packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    assert packed.sorted_indices is not None
    assert packed.unsorted_indices is not None
    before = [leaf[packed.sorted_indices].unsqueeze(0) for leaf in state]
    data, *after = kernel(packed.data, packed.batch_sizes, before if len(before) > 1 else before[0], weights, *options)
    outputs = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    y, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    final = tuple(leaf.squeeze(0)[packed.unsorted_indices] for leaf in after)
    return y, list(hold(lengths > 0, final, tuple(state)))


def orthogonal_blocks(weight: Tensor, blocks: int) -> None:
    """Fill a stack of `blocks` square recurrent matrices, each with a random orthogonal one (Saxe et al. 2014)."""
    with torch.no_grad():
        for block in weight.chunk(blocks):
            torch.nn.init.orthogonal_(block)
