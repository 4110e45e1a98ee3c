"""Softmax heads: from features to scores over a vocabulary, with weights of their own or those of the embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.nn.attention.blocks import EPSILON, Activation, nonlinearity
from ensue.nn.border import expect, expect_targets, weight_of
from ensue.nn.embeddings import TokenEmbedding
from ensue.nn.heads.linear_cross_entropy import WordSample, linear_cross_entropy, sampled_cross_entropy

LARGE_VOCABULARY = 1024
"""From this size on, the chunked loss is faster than the plain one (docs/log)."""


class SoftmaxHead(nn.Module):
    """`logits = V h + b` with a matrix V of its own."""

    def __init__(self, d_in: int, vocabulary_size: int) -> None:
        super().__init__()
        self.d_in, self.vocabulary_size = d_in, vocabulary_size
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_in))
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))
        nn.init.normal_(self.weight, std=0.02)

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Sets the biases to the tokens' log frequencies, which training would otherwise learn in its first steps."""
        expect("start_from_counts", "counts", counts, (self.vocabulary_size,), int)
        with torch.no_grad():
            self.bias.copy_(((counts + 1) / (counts + 1).sum()).log())

    def matrix(self) -> Tensor:
        """V, (vocabulary_size, features)."""
        return self.weight

    def features(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d"]:
        """The features that V multiplies."""
        return h

    def forward(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape V"]:
        """The logits of `h`. Raises `ValueError` for a wrong size, `TypeError` for a wrong type."""
        expect(type(self).__name__, "h", h, (..., self.d_in), self.bias.dtype, like=self.bias)
        return F.linear(self.features(h), self.matrix(), self.bias)

    def nats(self, h: Float[Tensor, "*shape d_in"], targets: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The surprisal `-log softmax(logits)[target]` of each target, in nats."""
        self._expect("nats", h, targets)
        return F.cross_entropy(self(h).flatten(0, -2), targets.flatten(), reduction="none").view_as(targets)

    def _expect(self, name: str, h: Tensor, targets: Tensor) -> None:
        where = f"{type(self).__name__}.{name}"
        expect(where, "h", h, (..., self.d_in), self.bias.dtype, like=self.bias)
        expect_targets(where, targets, h.shape[:-1], h, self.vocabulary_size)

    def total_nats(
        self,
        h: Float[Tensor, "*shape d_in"],
        targets: Int[Tensor, "*shape"],
        *,
        label_smoothing: float = 0.0,
        sample: WordSample | None = None,
    ) -> Float[Tensor, ""]:
        """The sum of `nats`, which training minimizes. The logits of a large vocabulary are never held all at once.

        With `label_smoothing` ε the target has the probability 1 - ε, and ε is spread over the vocabulary. With a
        `sample` the sum is estimated (`sampled_cross_entropy`), without smoothing.
        """
        self._expect("total_nats", h, targets)
        if sample is not None:
            if label_smoothing:
                raise ValueError("a sampled softmax has no label smoothing")
            return sampled_cross_entropy(
                self.features(h).flatten(0, -2), self.matrix(), self.bias, targets.flatten(), sample
            )
        if self.vocabulary_size < LARGE_VOCABULARY:
            logits = self(h).flatten(0, -2)
            return F.cross_entropy(logits, targets.flatten(), reduction="sum", label_smoothing=label_smoothing)
        return linear_cross_entropy(
            self.features(h).flatten(0, -2), self.matrix(), self.bias, targets.flatten(),
            label_smoothing=label_smoothing,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, vocabulary_size={self.vocabulary_size}"


class TiedSoftmaxHead(SoftmaxHead):
    """`logits = E h + b`, where E is the embedding's table (Press & Wolf 2017; Inan et al. 2017).

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
        return weight_of(self.embedding)

    def features(self, h: Float[Tensor, "*shape d_in"]) -> Float[Tensor, "*shape d"]:
        features: Tensor = self.projection(h)
        return features


class TransformedSoftmaxHead(TiedSoftmaxHead):
    """`logits = E LayerNorm(g(W h + c)) + b`, where E is the embedding's table (Devlin et al. 2019).

    g is the nonlinearity `activation`. The head of models that fill in masks.
    """

    def __init__(
        self,
        d_in: int,
        embedding: TokenEmbedding,
        *,
        activation: Activation = "gelu",
        norm_epsilon: float = EPSILON,
    ) -> None:
        super().__init__(d_in, embedding)
        d = embedding.d_out
        dense, norm = nn.Linear(d_in, d), nn.LayerNorm(d, norm_epsilon)
        self.projection = nn.Sequential(dense, nonlinearity(activation), norm)
