"""Texts as sets of n-grams, each with a score for every label: linear classifiers of a text, or of a pair.

Words are keys (`WordForms.keys`): above 0 for known words, below 0 for others, by their spelling; 0 is no word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.draws import dropped

MULTIPLIER = 0x9E3779B97F4A7C15 >> 1
"""The multiplier of the hash: 2⁶³ divided by the golden ratio, whose multiples are spread evenly (Knuth, TAOCP 6.4)."""

MIN_TEXTS = 2
"""N-grams of fewer training texts have the ratio 0, unless `least` says otherwise."""


class NgramBag(nn.Module):
    """`score_k = b_k + Σ_g r_g w_gk / √(Σ_g r_g²)` over the distinct n-grams g of a text that have no unknown word.

    The weight `r_g` is counted in the training texts and not trained (`weigh_by_ratio`, `weigh_by_idf`). N-grams share
    `buckets` rows by a hash (Joulin et al. 2016). In training each n-gram is left out with the probability `dropout`.
    A row whose weight is 0 says nothing and learns nothing: `keep_weighed` leaves it out, and `kept` is the number of
    those that remain. Raises ValueError for less than two buckets.
    """

    tables = 1
    """The number of tables of rows."""

    place: nn.Parameter | None
    """For each row its place among those that are kept, 0 for others."""

    def __init__(
        self,
        num_labels: int,
        *,
        longest: int = 2,
        buckets: int = 1 << 19,
        dropout: float = 0.0,
        kept: int | None = None,
    ) -> None:
        super().__init__()
        if buckets < 2:
            raise ValueError(f"ngram_buckets is at least 2, not {buckets}: one place is for what is unknown")
        self.longest, self.buckets, self.dropout = longest, buckets, dropout
        self.num_rows = self.tables * buckets
        size = self.num_rows if kept is None else 1 + kept
        self.weight = nn.Parameter(torch.zeros(size, num_labels))
        self.bias = nn.Parameter(torch.zeros(num_labels))
        self.ratio = nn.Parameter(torch.ones(size), requires_grad=False)
        place = None if kept is None else torch.zeros(self.num_rows, dtype=torch.int32)
        self.register_parameter("place", None if place is None else nn.Parameter(place, requires_grad=False))

    def ngrams(self, words: Int[Tensor, "B T"]) -> Int[Tensor, "B N"]:
        """The distinct n-grams of each text as rows of the table, ascending, padded with 0."""
        return _distinct(torch.cat(list(self._rows(words, words > 0)), dim=1))

    def _rows(self, words: Int[Tensor, "B T"], known: Bool[Tensor, "B T"]) -> Iterator[Int[Tensor, "B T"]]:
        """For each length, the rows of the n-grams from each word on; 0 unless all words of the n-gram are `known`."""
        key, whole, length = torch.zeros_like(words), torch.ones_like(known), words.shape[1]
        following, known = (F.pad(part, (0, self.longest)) for part in (words, known))
        for n in range(self.longest):
            key = (key + following[:, n : n + length]) * MULTIPLIER  # wraps around
            whole = whole & known[:, n : n + length]
            yield ((key >> 20) % (self.buckets - 1) + 1).masked_fill(~whole, 0)

    def forward(self, words: Int[Tensor, "B T"]) -> Float[Tensor, "B K"]:
        """The scores of all labels for texts of keys."""
        return self.bias + self._scores(self.ngrams(words))

    def _scores(self, ids: Int[Tensor, "B N"]) -> Float[Tensor, "B K"]:
        """The scores of the n-grams, without the bias."""
        if not ids.shape[1]:  # which embedding_bag does not take
            return self.weight.new_zeros(len(ids), self.weight.shape[1])
        if self.place is not None:
            ids = F.embedding(ids, self.place.unsqueeze(1)).squeeze(2).long()
        r = F.embedding(ids, self.ratio.unsqueeze(1)).squeeze(2).masked_fill(ids == 0, 0.0)
        if self.training and self.dropout:
            r = dropped(r, self.dropout)
        r = r / r.norm(dim=1, keepdim=True).clamp(min=1e-6)
        scores: Tensor = F.embedding_bag(ids, self.weight, mode="sum", per_sample_weights=r)
        return scores

    def keep_weighed(self) -> int:
        """Leaves out the rows that have been weighed as 0, before training. Returns the number of the others."""
        rows = self.ratio.detach().nonzero().squeeze(1)
        place = torch.zeros(self.num_rows, dtype=torch.int32)
        place[rows] = torch.arange(1, 1 + len(rows), dtype=torch.int32)
        self.place = nn.Parameter(place, requires_grad=False)
        self.ratio = nn.Parameter(F.pad(self.ratio.detach()[rows], (1, 0)), requires_grad=False)
        self.weight = nn.Parameter(torch.zeros(1 + len(rows), self.weight.shape[1]))
        return len(rows)

    def weigh_by_ratio(self, present: Float[Tensor, "G K"], *, least: int = MIN_TEXTS) -> None:
        """Sets r to the largest of an n-gram's naive Bayes log-count ratios (Wang & Manning 2012).

        `present` counts, for each row and label, the training texts that have both.
        """
        total = present.sum(1, keepdim=True)
        met = _met(total, least)
        inside, outside = ((counts + 1).masked_fill(~met, 0.0) for counts in (present, total - present))
        ratios = (inside / inside.sum(0)).log() - (outside / outside.sum(0)).log()
        self.weigh(ratios.abs().amax(1).masked_fill(~met.squeeze(1), 0.0))

    def weigh_by_idf(self, present: Float[Tensor, " G"], num_texts: int, *, least: int = MIN_TEXTS) -> None:
        """Sets r to the inverse document frequency, log((1 + texts) / (1 + texts with the n-gram)) + 1.

        `present` counts, for each row, the training texts that have it. Source: Spärck Jones 1972, smoothed as in
        scikit-learn.
        """
        idf = ((1 + num_texts) / (1 + present)).log() + 1
        self.weigh(idf.masked_fill(~_met(present, least), 0.0))

    def weigh(self, ratio: Float[Tensor, " G"]) -> None:
        """Sets r."""
        self.ratio = nn.Parameter(ratio, requires_grad=False)


class PairBag(NgramBag):
    """`score_k = b_k + Σ_g r_g w_gk / √(Σ_g r_g²) + Σ_n o_n v_nk` over the n-grams g of two texts, also with unknown
    words.

    An n-gram of both texts and the same n-gram of only one text have different rows, in two tables. The overlap is the
    share of a text's n-grams that the other text has too. For each n there are two overlaps o, the smaller and the
    larger one. So the order of the texts makes no difference.
    """

    tables = 2

    def __init__(self, num_labels: int, *, longest: int = 2, **sizes: Any) -> None:
        super().__init__(num_labels, longest=longest, **sizes)
        self.overlap = nn.Parameter(torch.zeros(2 * longest, num_labels))

    def ngrams(self, words: Int[Tensor, "B T"], others: Int[Tensor, "B S"]) -> Int[Tensor, "B N"]:  # type: ignore[override]
        """The distinct n-grams of both texts as rows, padded with 0."""
        return self.compare(words, others)[0]

    def compare(
        self, words: Int[Tensor, "B T"], others: Int[Tensor, "B S"]
    ) -> tuple[Int[Tensor, "B N"], Float[Tensor, "B o"]]:
        """The distinct n-grams as rows, with those of both texts in the second table; and the overlaps."""
        found, overlaps = [], []
        for rows in zip(self._rows(words, words != 0), self._rows(others, others != 0), strict=True):
            one, other = map(_distinct, rows)
            both, shared = _marked(one, other)
            found.append(both + self.buckets * shared)
            sizes = torch.stack([one.count_nonzero(1), other.count_nonzero(1)], dim=1).clamp(min=1)
            overlaps.append((shared.sum(1, keepdim=True) / sizes).sort(dim=1).values)
        return torch.cat(found, dim=1), torch.cat(overlaps, dim=1)

    def forward(self, words: Int[Tensor, "B T"], others: Int[Tensor, "B S"]) -> Float[Tensor, "B K"]:  # type: ignore[override]
        """The scores of all labels for pairs of texts of keys."""
        ids, overlaps = self.compare(words, others)
        return self.bias + self._scores(ids) + overlaps @ self.overlap


def _distinct(ids: Int[Tensor, "B N"]) -> Int[Tensor, "B N"]:
    """Each row in ascending order, with 0 in place of repeated numbers."""
    ids = ids.sort(dim=1).values
    return ids.masked_fill(F.pad(ids[:, 1:] == ids[:, :-1], (1, 0)), 0)


def _marked(one: Int[Tensor, "B N"], other: Int[Tensor, "B M"]) -> tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """The numbers of two sets, each once, with zeros between them, and which of them are in both sets."""
    ids = torch.cat((one, other), dim=1).sort(dim=1).values
    again = (ids[:, 1:] == ids[:, :-1]) & (ids[:, 1:] > 0)
    return ids.masked_fill(F.pad(again, (0, 1)), 0), F.pad(again, (1, 0))


def _met(total: Float[Tensor, "G ..."], least: int) -> Bool[Tensor, "G ..."]:
    """Which n-grams count. Row 0 is for padding and unknown words."""
    met = total >= least
    met[0] = False
    return met
