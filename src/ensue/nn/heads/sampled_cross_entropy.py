"""The cross-entropy of a softmax over some words that stand for all: training over a large vocabulary in less time.

The sum of exponentials over V words is estimated from the target t and K words w_k, which are drawn without regard to
the target (Bengio & Senécal 2008; Jean et al. 2015). If a word w is expected to be among them m(w) times,

    Z = Σ_w exp(s_w)   ≈   exp(s_t) + Σ_{k: w_k ≠ t} exp(s_{w_k} - log m(w_k)),   loss = log Z - s_t

The estimate of Z is unbiased for every target, since a word that is the target by accident does not count twice. The
logarithm of it, and with it the loss and its gradient, is unbiased only in the limit of many words: the estimated loss
is too low on average. If every word is drawn once, all is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ensue.nn.border import expect


class WordSample(NamedTuple):
    """Words that stand for all: their `ids` (K,), and `log_expected` (K,), the logarithm of how many times each word
    was expected among them.
    """

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

    Raises `ValueError` for wrong sizes and `TypeError` for wrong types.
    """
    name = "sampled_cross_entropy"
    expect(name, "weight", weight, ("words", "features"))
    expect(name, "h", h, ("rows", weight.shape[1]), weight.dtype, like=weight)
    expect(name, "bias", bias, (weight.shape[0],), weight.dtype, like=weight)
    expect(name, "targets", targets, (h.shape[0],), torch.int64, like=weight)
    expect(name, "sample.ids", sample.ids, ("words",), torch.int64, like=weight)
    expect(name, "sample.log_expected", sample.log_expected, sample.ids.shape, like=weight)
    words, n = torch.cat((targets, sample.ids)), len(h)
    rows, biases = F.embedding(words, weight), bias[words]
    right = (h * rows[:n]).sum(1) + biases[:n]
    others = F.linear(h, rows[n:], biases[n:] - sample.log_expected.to(bias.dtype))
    others = others.masked_fill(targets.unsqueeze(1) == sample.ids, -torch.inf)
    logits = torch.cat((right.unsqueeze(1).to(others.dtype), others), dim=1)
    return F.cross_entropy(logits, torch.zeros_like(targets), reduction="sum")
