"""A text as the set of its words and n-grams, each with a score for every label: a linear classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

MULTIPLIER = 0x9E3779B97F4A7C15 >> 1
"""Of the hash: 2⁶³ divided by the golden ratio, whose multiples scatter (Knuth, TAOCP 6.4)."""

MIN_TEXTS = 2
"""N-grams of fewer training texts count for nothing."""


class NgramBag(nn.Module):
    """`score_k = b_k + Σ_g r_g w_gk / √(Σ_g r_g²)` over the distinct n-grams g of a text that have no unknown word.

    `r_g` is fixed: how much an n-gram tells of the labels, the largest of their naive Bayes log-count ratios (Wang &
    Manning 2012). N-grams share `buckets` rows by a hash (Joulin et al. 2016). In training each n-gram is left out with
    probability `dropout`.
    """

    def __init__(self, num_labels: int, *, longest: int = 2, buckets: int = 1 << 19, dropout: float = 0.0) -> None:
        super().__init__()
        if buckets < 2:
            raise ValueError(f"ngram_buckets is at least 2, not {buckets}: one place is for what is unknown")
        self.longest, self.buckets, self.dropout = longest, buckets, dropout
        self.weight = nn.Parameter(torch.zeros(buckets, num_labels))
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.ratio = nn.Parameter(torch.ones(buckets), requires_grad=False)

    def ngrams(self, words: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None) -> Int[Tensor, "B N"]:
        """The distinct n-grams of each text as rows of the table, ascending; 0 fills up. `words` are ids, 0 unknown."""
        words = words if mask is None else words.masked_fill(~mask, 0)
        found, key = [], torch.zeros_like(words)
        known = torch.ones_like(words, dtype=torch.bool)
        for n in range(self.longest):
            here = F.pad(words[:, n:], (0, min(n, words.shape[1])))
            key = (key + here) * MULTIPLIER  # wraps around
            known = known & (here > 0)
            found.append(((key >> 20) % (self.buckets - 1) + 1).masked_fill(~known, 0))
        ids = torch.cat(found, dim=1).sort(dim=1).values
        return ids.masked_fill(F.pad(ids[:, 1:] == ids[:, :-1], (1, 0)), 0)

    def forward(self, words: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B K"]:
        ids = self.ngrams(words, mask)
        if not ids.shape[1]:  # which embedding_bag does not take
            return self.bias.expand(len(ids), -1)
        r = F.embedding(ids, self.ratio.unsqueeze(1)).squeeze(2).masked_fill(ids == 0, 0.0)
        if self.training and self.dropout:
            r = F.dropout(r, self.dropout)
        r = r / r.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return self.bias + F.embedding_bag(ids, self.weight, mode="sum", per_sample_weights=r)

    def weigh(self, present: Float[Tensor, "G K"]) -> None:
        """Set the ratios: `present` counts for each bucket and label the training texts that have both."""
        total = present.sum(1, keepdim=True)
        met = total >= MIN_TEXTS
        met[0] = False  # where padding and unknown words are
        inside, outside = ((counts + 1).masked_fill(~met, 0.0) for counts in (present, total - present))
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()
        self.ratio.data.copy_(ratios.abs().amax(1).masked_fill(~met.squeeze(1), 0.0))
