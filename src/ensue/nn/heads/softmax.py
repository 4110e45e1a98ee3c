"""Softmax heads: from features to logits over a vocabulary, with separate or tied weights.

With a vocabulary of V tokens, the logits (rows × V) are by far the largest tensor of a batch, and plain autograd writes
and reads them five times. Here logits, softmax and gradients are computed for one chunk of rows at a time, and a chunk
stays in the processor's cache. Since the loss is a sum over rows, the forward pass can compute the gradients:

    dlogits = softmax(logits) - onehot(target),   dh = dlogits V,   dV = dlogitsᵀ h,   db = Σ dlogits

The bias is the weight of an additional feature that is always 1. Under autocast, the three products are in the type of
autocast. Exponentials, nats and sums are in float32 or more.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.engine import c_functions, int8_linear
from ensue.engine.products import parallel_rows, worth_threads
from ensue.engine.storage import address, gradients_of, is_transformed, needs_history
from ensue.nn.attention.blocks import EPSILON, Activation, nonlinearity
from ensue.nn.border import expect, expect_targets, get_weight
from ensue.nn.embeddings import TokenEmbedding
from ensue.types import at_least_float32

CHUNK_ELEMENTS, CHUNK_ROWS = 1 << 22, 256
"""The number of logits in a chunk, and the minimum number of its rows; the fastest values on CPUs (docs/log)."""

BLOCK_ELEMENTS = 1 << 18
"""The number of logits in a block. The softmax of a block stays in a cache of 2 MB (docs/log)."""

ALIGNMENT = 16
"""Features are padded to a multiple of 16, for which matrix products are fastest."""


def linear_cross_entropy(
    h: Float[Tensor, "N d"], weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"], targets: Int[Tensor, " N"], *,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:  # fmt: skip
    """Return `Σ_n -log softmax(weight h_n + bias)[target_n]` in nats, a scalar, in float32 or float64.

    With `label_smoothing` ε, the target has the probability 1 - ε, and all V tokens share ε (Szegedy et al. 2016).
    Gradients are computed only if they are enabled. A second derivative stores all logits.
    """
    _expect_arguments("linear_cross_entropy", h, weight, bias, targets)
    device = h.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    if not torch.is_grad_enabled():
        h, weight, bias = h.detach(), weight.detach(), bias.detach()
    if is_transformed():
        return _compute_plain(h, weight, bias, targets, label_smoothing)
    return _LinearCrossEntropy.apply(h, weight, bias, targets, dtype, label_smoothing)  # type: ignore[no-untyped-call]


def _expect_arguments(name: str, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> None:
    expect(name, "weight", weight, ("words", "features"))
    expect(name, "h", h, ("rows", weight.shape[1]), weight.dtype, like=weight)
    expect(name, "bias", bias, (weight.shape[0],), weight.dtype, like=weight)
    expect_targets(name, targets, (h.shape[0],), weight, len(weight))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, smoothing: float
    ) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            total, ctx.gradients = _sum_by_chunks(
                h, weight, bias, targets, dtype, smoothing, with_gradients=any(ctx.needs_input_grad)
            )
        ctx.save_for_backward(h, weight, bias, targets)
        ctx.smoothing = smoothing
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if needs_history(upstream):
            *arguments, targets = ctx.saved_tensors
            reference = partial(_compute_plain, targets=targets, smoothing=ctx.smoothing)
            return (*gradients_of(reference, arguments, upstream), None, None, None)
        return (*(gradient * upstream[0].to(gradient.dtype) for gradient in ctx.gradients), None, None, None)


def _compute_plain(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Compute `linear_cross_entropy` from all logits at once, under autograd."""
    dtype = at_least_float32(weight.dtype)
    logits = F.linear(h.to(dtype), weight.to(dtype), bias.to(dtype))
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


def _sum_by_chunks(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype, smoothing: float, *,
    with_gradients: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor] | None]:  # fmt: skip
    d = weight.shape[1]
    padding = -(d + 1) % ALIGNMENT
    rows = F.pad(F.pad(h.to(dtype), (0, 1), value=1.0), (0, padding))
    columns = F.pad(torch.cat((weight, bias.unsqueeze(1)), dim=1).to(dtype), (0, padding))
    sum_dtype = at_least_float32(weight.dtype)
    drows, dcolumns = torch.empty_like(rows), weight.new_zeros(columns.shape, dtype=sum_dtype)
    total = weight.new_zeros((), dtype=sum_dtype)
    size = max(CHUNK_ROWS, CHUNK_ELEMENTS // len(weight))
    for start in range(0, len(h), size):
        chunk, labels = rows[start : start + size], targets[start : start + size]
        logits = chunk @ columns.t()
        total += _replace_by_gradient(logits, labels, smoothing)
        if with_gradients:
            drows[start : start + size] = logits @ columns
            dcolumns += logits.t() @ chunk
    dcolumns = dcolumns.to(weight.dtype)
    return total, (drows[:, :d].to(h.dtype), dcolumns[:, :d], dcolumns[:, d]) if with_gradients else None


def _replace_by_gradient(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the sum of nats, and overwrite `logits` (n, V) with its gradient, in C or block by block in torch."""
    functions = c_functions(logits)
    if functions is not None and targets.min() >= 0 and targets.max() < logits.shape[1]:
        (n, words), workers = logits.shape, worth_threads(logits)
        nats, workspace = (logits.new_empty(sizes, dtype=torch.float32) for sizes in ((n,), (workers, words)))
        targets_address = address("targets", targets, torch.int64, (n,))
        scores = address("logits", logits, logits.dtype, (n, words)), logits.dtype == torch.bfloat16

        def work(first: int, last: int, worker: int) -> None:
            outputs = workspace[worker].data_ptr(), nats.data_ptr()
            functions.surprisals(first, last, words, smoothing, targets_address, *outputs, *scores)

        parallel_rows(n, work, max_workers=workers)
        return nats.sum()
    total = logits.new_zeros((), dtype=at_least_float32(logits.dtype))
    block = max(1, BLOCK_ELEMENTS // logits.shape[1])
    for start in range(0, len(logits), block):
        rows = slice(start, start + block)
        total += _replace_block(logits[rows], targets[rows].unsqueeze(1), smoothing)
    return total


def _replace_block(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Compute `_replace_by_gradient` for a block in torch."""
    z = logits.to(at_least_float32(logits.dtype))
    p = torch.softmax(z, dim=1)
    expected = z.gather(1, targets)
    if smoothing:
        expected = (1 - smoothing) * expected + smoothing * z.mean(1, keepdim=True)
    nats = z.amax(1, keepdim=True) - expected - p.amax(1, keepdim=True).log()
    p.scatter_add_(1, targets, p.new_full(targets.shape, smoothing - 1.0))
    logits.copy_(p.sub_(smoothing / p.shape[1]) if smoothing else p)
    return nats.sum()


class WordSample(NamedTuple):
    """The ids (K,) of sampled words, and the logarithms (K,) of their expected counts in the sample."""

    ids: Tensor
    log_expected: Tensor


def sampled_cross_entropy(
    h: Float[Tensor, "N d"], weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"], targets: Int[Tensor, " N"],
    sample: WordSample,
) -> Float[Tensor, ""]:  # fmt: skip
    """Estimate `Σ_n -log softmax(weight h_n + bias)[target_n]` in nats from a sample of the words; a scalar.

    Sampling saves time in training with a large vocabulary. The sum of exponentials over V words is estimated from the
    target t and K words w_k, which are drawn independently of the target (Bengio & Senécal 2008; Jean et al. 2015).
    With the expected count m(w) of a word w in the sample,

        Z = Σ_w exp(s_w)   ≈   exp(s_t) + Σ_{k: w_k ≠ t} exp(s_{w_k} - log m(w_k)),   loss = log Z - s_t

    The estimate of Z is unbiased for every target, since a sampled word that equals the target is left out. The
    estimates of log Z, the loss and the gradient are biased: on average the estimated loss is too low. The bias
    vanishes as K grows. If every word is drawn once, the loss is exact.

    Raises ValueError for wrong sizes and TypeError for wrong types.
    """
    name = "sampled_cross_entropy"
    _expect_arguments(name, h, weight, bias, targets)
    expect(name, "sample.ids", sample.ids, ("words",), torch.int64, like=weight)
    expect(name, "sample.log_expected", sample.log_expected, sample.ids.shape, like=weight)
    words, n = torch.cat((targets, sample.ids)), len(h)
    rows, biases = F.embedding(words, weight), bias[words]
    target_logits = (h * rows[:n]).sum(1) + biases[:n]
    sampled = F.linear(h, rows[n:], biases[n:] - sample.log_expected.to(bias.dtype))
    sampled = sampled.masked_fill(targets.unsqueeze(1) == sample.ids, -torch.inf)
    logits = torch.cat((target_logits.unsqueeze(1).to(sampled.dtype), sampled), dim=1)
    return F.cross_entropy(logits, torch.zeros_like(targets), reduction="sum")


LARGE_VOCABULARY = 1024
"""The vocabulary size from which `linear_cross_entropy` is faster than torch's cross-entropy (docs/log)."""


class SoftmaxHead(nn.Module):
    """A softmax head, `logits = V h + b`."""

    in_int8 = False
    """Whether `forward` without gradients multiplies int8 numbers."""

    def __init__(self, d_in: int, vocabulary_size: int) -> None:
        super().__init__()
        self.d_in, self.vocabulary_size = d_in, vocabulary_size
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_in))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        nn.init.normal_(self.weight, std=0.02)

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Set the biases to the log frequencies of the tokens, so that training need not learn them first."""
        expect("start_from_counts", "counts", counts, (self.vocabulary_size,), int)
        with torch.no_grad():
            self.bias.copy_(((counts + 1) / (counts + 1).sum()).log())

    def matrix(self) -> Tensor:
        """Return V, (vocabulary_size, features)."""
        return self.weight

    def features(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d"]:
        """Return the features that are multiplied by V."""
        return h

    def forward(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape V"]:
        """Return the logits of `h`. Raises ValueError for a wrong size, TypeError for a wrong type."""
        expect(type(self).__name__, "h", h, (..., self.d_in), self.bias.dtype, like=self.bias)
        linear = partial(int8_linear, self) if self.in_int8 else F.linear
        return linear(self.features(h), self.matrix(), self.bias)

    def nats(self, h: Float[Tensor, "*shape d_in"], targets: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the surprisal `-log softmax(logits)[target]` of each target, in nats."""
        self._expect("nats", h, targets)
        return F.cross_entropy(self(h).flatten(0, -2), targets.flatten(), reduction="none").view_as(targets)

    def _expect(self, name: str, h: Tensor, targets: Tensor) -> None:
        where = f"{type(self).__name__}.{name}"
        expect(where, "h", h, (..., self.d_in), self.bias.dtype, like=self.bias)
        expect_targets(where, targets, h.shape[:-1], h, self.vocabulary_size)

    def total_nats(
        self, h: Float[Tensor, "*shape d_in"], targets: Int[Tensor, "*shape"], *, label_smoothing: float = 0.0,
        sample: WordSample | None = None,
    ) -> Float[Tensor, ""]:  # fmt: skip
        """Return the sum of `nats`, for training, without storing all logits of a large vocabulary.

        With `label_smoothing` ε, the target has the probability 1 - ε, and all tokens share ε. With a `sample`, the sum
        is estimated by `sampled_cross_entropy`, without smoothing.
        """
        self._expect("total_nats", h, targets)
        if sample is not None and label_smoothing:
            raise ValueError("a sampled softmax cannot be combined with label smoothing")
        if sample is None and self.vocabulary_size < LARGE_VOCABULARY:
            logits = self(h).flatten(0, -2)
            return F.cross_entropy(logits, targets.flatten(), reduction="sum", label_smoothing=label_smoothing)
        arguments = self.features(h).flatten(0, -2), self.matrix(), self.bias, targets.flatten()
        if sample is not None:
            return sampled_cross_entropy(*arguments, sample)
        return linear_cross_entropy(*arguments, label_smoothing=label_smoothing)

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, vocabulary_size={self.vocabulary_size}"


class TiedSoftmaxHead(SoftmaxHead):
    """A softmax head that shares the embedding's table E, `logits = E h + b` (Press & Wolf 2017; Inan et al. 2017).

    If `d_in` differs from the embedding's size, h is projected first.
    """

    def __init__(self, d_in: int, embedding: TokenEmbedding) -> None:
        nn.Module.__init__(self)
        self.d_in, self.vocabulary_size = d_in, embedding.vocabulary_size
        self.embedding = embedding
        self.projection: nn.Module = nn.Identity()
        if d_in != embedding.d_out:
            self.projection = nn.Linear(d_in, embedding.d_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(embedding.vocabulary_size))

    def matrix(self) -> Tensor:
        return get_weight(self.embedding)

    def features(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d"]:
        return self.projection(h)


class TransformedSoftmaxHead(TiedSoftmaxHead):
    """The head of masked language models, `logits = E LayerNorm(g(W h + c)) + b` (Devlin et al. 2019).

    E is the embedding's table, and g the nonlinearity `activation`.
    """

    def __init__(
        self, d_in: int, embedding: TokenEmbedding, *, activation: Activation = "gelu", norm_epsilon: float = EPSILON
    ) -> None:
        super().__init__(d_in, embedding)
        d = embedding.d_out
        dense, norm = nn.Linear(d_in, d), nn.LayerNorm(d, norm_epsilon)
        self.projection = nn.Sequential(dense, nonlinearity(activation), norm)
