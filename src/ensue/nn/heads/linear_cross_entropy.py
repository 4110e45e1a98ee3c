"""A linear layer and its softmax cross-entropy as one function that never holds all logits.

With a vocabulary of V tokens, the logits of a batch (rows × V) are by far its largest tensor, and plain autograd writes
and reads them five times. Here a chunk of rows is computed at a time and stays in cache: logits, softmax and gradients.
For a sum of nats the gradients are known in the forward pass:

    dlogits = softmax(logits) - onehot(target),   dh = dlogits V,   dV = dlogitsᵀ h,   db = Σ dlogits

The bias is the weight of one more feature that is always 1. Under autocast the three products run in its type. Logits
are read as float32, a block at a time. Exponentials, nats and sums over blocks and chunks are never in half precision.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ensue.engine import passes
from ensue.engine.products import in_parts, worth_threads
from ensue.engine.storage import address, gradients_of, is_transformed, needs_history
from ensue.nn.border import expect, expect_targets
from ensue.types import at_least_float32

CHUNK_ELEMENTS, CHUNK_ROWS = 1 << 22, 256
"""The number of logits in a chunk, and the smallest number of its rows; the fastest on CPUs (docs/log)."""

BLOCK_ELEMENTS = 1 << 18
"""The number of logits in a block, whose softmax stays in a cache of 2 MB (docs/log)."""

ALIGNMENT = 16
"""Features are padded to a multiple of this number, for which the kernels of products are fastest."""


def linear_cross_entropy(
    h: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    bias: Float[Tensor, " V"],
    targets: Int[Tensor, " N"],
    *,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """`Σ_n -log softmax(weight h_n + bias)[target_n]` in nats, a scalar, in float32 or float64.

    With `label_smoothing` ε each target is a distribution: 1 - ε for the target and ε evenly over all V (Szegedy et al.
    2016). Without gradients (`torch.no_grad`) none are worked out. A gradient of the gradient holds all logits.
    """
    expect("linear_cross_entropy", "weight", weight, ("words", "features"))
    expect("linear_cross_entropy", "h", h, ("rows", weight.shape[1]), weight.dtype, like=weight)
    expect("linear_cross_entropy", "bias", bias, (weight.shape[0],), weight.dtype, like=weight)
    expect_targets("linear_cross_entropy", targets, (h.shape[0],), weight, len(weight))
    device = h.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    if not torch.is_grad_enabled():
        h, weight, bias = h.detach(), weight.detach(), bias.detach()
    if is_transformed():
        return _plain(h, weight, bias, targets, label_smoothing)
    total: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets, dtype, label_smoothing)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, smoothing: float
    ) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            total, ctx.gradients = _chunked(
                h, weight, bias, targets, dtype, smoothing, with_gradients=any(ctx.needs_input_grad)
            )
        ctx.save_for_backward(h, weight, bias, targets)
        ctx.smoothing = smoothing
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if needs_history(upstream):
            *given, targets = ctx.saved_tensors
            reference = partial(_plain, targets=targets, smoothing=ctx.smoothing)
            return (*gradients_of(reference, given, upstream), None, None, None)
        return (*(gradient * upstream[0].to(gradient.dtype) for gradient in ctx.gradients), None, None, None)


def _plain(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the sum with all logits at once, recorded by autograd."""
    dtype = at_least_float32(weight.dtype)
    logits = F.linear(h.to(dtype), weight.to(dtype), bias.to(dtype))
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


def _chunked(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    dtype: torch.dtype,
    smoothing: float,
    *,
    with_gradients: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:
    d = weight.shape[1]
    padding = -(d + 1) % ALIGNMENT
    rows = F.pad(F.pad(h.to(dtype), (0, 1), value=1.0), (0, padding))
    columns = F.pad(torch.cat((weight, bias.unsqueeze(1)), dim=1).to(dtype), (0, padding))
    exact = at_least_float32(weight.dtype)
    drows, dcolumns = torch.empty_like(rows), weight.new_zeros(columns.shape, dtype=exact)
    total = weight.new_zeros((), dtype=exact)
    size = max(CHUNK_ROWS, CHUNK_ELEMENTS // len(weight))
    for start in range(0, len(h), size):
        chunk, wanted = rows[start : start + size], targets[start : start + size]
        logits = chunk @ columns.t()
        total += _to_gradient(logits, wanted, smoothing)
        if with_gradients:
            drows[start : start + size] = logits @ columns
            dcolumns += logits.t() @ chunk
    dcolumns = dcolumns.to(weight.dtype)
    return total, (drows[:, :d].to(h.dtype), dcolumns[:, :d], dcolumns[:, d]) if with_gradients else None


def _to_gradient(logits: Tensor, wanted: Tensor, smoothing: float) -> Tensor:
    """The sum of the rows' nats. Replaces `logits` (n, V) by the gradient of the nats: in C, or a block at a time."""
    functions = passes(logits)
    if functions is not None and wanted.min() >= 0 and wanted.max() < logits.shape[1]:
        (n, words), workers = logits.shape, worth_threads(logits)
        nats, room = (torch.empty(sizes, dtype=torch.float32) for sizes in ((n,), (workers, words)))
        targets = address("targets", wanted, torch.int64, (n,))
        scores = address("logits", logits, logits.dtype, (n, words)), logits.dtype == torch.bfloat16

        def work(first: int, last: int, worker: int) -> None:
            own = room[worker].data_ptr(), nats.data_ptr()
            functions.surprisals(first, last, words, smoothing, targets, *own, *scores)

        in_parts(n, work, most=workers)
        return nats.sum()
    total = logits.new_zeros((), dtype=at_least_float32(logits.dtype))
    block = max(1, BLOCK_ELEMENTS // logits.shape[1])
    for start in range(0, len(logits), block):
        rows = slice(start, start + block)
        total += _block_to_gradient(logits[rows], wanted[rows].unsqueeze(1), smoothing)
    return total


def _block_to_gradient(logits: Tensor, wanted: Tensor, smoothing: float) -> Tensor:
    """`_to_gradient` in torch.

    The largest probability of a softmax is 1 over its sum of exponentials, and the nats need the logarithm of this sum.
    """
    z = logits.to(at_least_float32(logits.dtype))
    p = torch.softmax(z, dim=1)
    expected = z.gather(1, wanted)
    if smoothing:
        expected = (1 - smoothing) * expected + smoothing * z.mean(1, keepdim=True)
    nats = z.amax(1, keepdim=True) - expected - p.amax(1, keepdim=True).log()
    p.scatter_add_(1, wanted, p.new_full(wanted.shape, smoothing - 1.0))
    logits.copy_(p.sub_(smoothing / p.shape[1]) if smoothing else p)
    return nats.sum()


class WordSample(NamedTuple):
    """Sampled words: their `ids` (K,), and `log_expected` (K,), the log of each word's expected count in the sample."""

    ids: Tensor
    log_expected: Tensor


def sampled_cross_entropy(
    h: Float[Tensor, "N d"],
    weight: Float[Tensor, "V d"],
    bias: Float[Tensor, " V"],
    targets: Int[Tensor, " N"],
    sample: WordSample,
) -> Float[Tensor, ""]:
    """`Σ_n -log softmax(weight h_n + bias)[target_n]` in nats, estimated from a sample of the words; a scalar.

    Training over a large vocabulary takes less time so. The sum of exponentials over V words is estimated from the
    target t and K words w_k, which are drawn without regard to the target (Bengio & Senécal 2008; Jean et al. 2015). If
    a word w is expected to be among them m(w) times,

        Z = Σ_w exp(s_w)   ≈   exp(s_t) + Σ_{k: w_k ≠ t} exp(s_{w_k} - log m(w_k)),   loss = log Z - s_t

    The estimate of Z is unbiased for every target, since a word that is the target by accident does not count twice.
    The logarithm of it, and with it the loss and its gradient, is unbiased only in the limit of many words: the
    estimated loss is too low on average. If every word is drawn once, all is exact.

    Raises `ValueError` for wrong sizes and `TypeError` for wrong types.
    """
    name = "sampled_cross_entropy"
    expect(name, "weight", weight, ("words", "features"))
    expect(name, "h", h, ("rows", weight.shape[1]), weight.dtype, like=weight)
    expect(name, "bias", bias, (weight.shape[0],), weight.dtype, like=weight)
    expect_targets(name, targets, (h.shape[0],), weight, len(weight))
    expect(name, "sample.ids", sample.ids, ("words",), torch.int64, like=weight)
    expect(name, "sample.log_expected", sample.log_expected, sample.ids.shape, like=weight)
    words, n = torch.cat((targets, sample.ids)), len(h)
    rows, biases = F.embedding(words, weight), bias[words]
    right = (h * rows[:n]).sum(1) + biases[:n]
    others = F.linear(h, rows[n:], biases[n:] - sample.log_expected.to(bias.dtype))
    others = others.masked_fill(targets.unsqueeze(1) == sample.ids, -torch.inf)
    logits = torch.cat((right.unsqueeze(1).to(others.dtype), others), dim=1)
    return F.cross_entropy(logits, torch.zeros_like(targets), reduction="sum")
