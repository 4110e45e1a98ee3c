"""The linear-chain conditional random field: a head that scores whole sequences of tags.

The module has the scores of tag pairs and of both ends. `chain.py` has its sums over paths, `paths.py` its best paths.
It is not a layer: it turns emission scores (B, T, K) into a distribution over paths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.heads.chain import log_partition, marginals, score
from ensue.nn.heads.paths import k_best, viterbi
from ensue.nn.heads.single_chain import ChainScores

LEAST_SHARE = 1e-12
"""Probabilities of a teacher are at least this, so that each legal path has one."""


class LegalTags(NamedTuple):
    """The legal paths: tags that begin a path, pairs of neighbors (row i before column j), tags that end a path."""

    start: Bool[Tensor, " K"]
    pairs: Bool[Tensor, "K K"]
    end: Bool[Tensor, " K"]


class LinearChainCRF(nn.Module):
    """Lafferty et al. 2001; with neural emissions and scores of the ends, Lample et al. 2016, section 2.

        score(x, y) = start[y_1] + Σ_t e_t[y_t] + Σ_t A[y_{t-1}, y_t] + end[y_T]
        P(y | x) = exp score(x, y) / Z(x)      Z(x) = Σ_y exp score(x, y), over the legal y

    All scores start at zero, so that only the emissions count. In every method `emissions` are (B, T, K) and `mask`
    (B, T) is True on real positions, which come first (None: all). Values at padding change nothing. An empty row has
    one path, the empty one, with the score 0. Sums are computed in float64, also under autocast. Raises `ValueError` if
    `legal` has not `num_tags` tags.
    """

    def __init__(self, num_tags: int, *, legal: LegalTags | None = None) -> None:
        super().__init__()
        K = self.num_tags = num_tags
        if legal is not None and [tuple(part.shape) for part in legal] != [(K,), (K, K), (K,)]:
            raise ValueError(f"legal has {len(legal.start)} tags, the CRF {K}")
        self.start, self.end = nn.Parameter(torch.zeros(K)), nn.Parameter(torch.zeros(K))
        self.transitions = nn.Parameter(torch.zeros(K, K))
        for name, part in zip(LegalTags._fields, legal or (None, None, None), strict=True):
            self.register_buffer(f"legal_{name}", part, persistent=False)

    @property
    def legal(self) -> LegalTags | None:
        """The legal tags; None if all are."""
        found = [getattr(self, f"legal_{name}") for name in LegalTags._fields]
        return None if found[0] is None else LegalTags(*found)

    def chain(self) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of start, transitions and end; -inf for what is illegal."""
        raw = self.start, self.transitions, self.end
        if self.legal is None:
            return raw
        start, pairs, end = self.legal
        return (
            raw[0].masked_fill(~start, -torch.inf),
            raw[1].masked_fill(~pairs, -torch.inf),
            raw[2].masked_fill(~end, -torch.inf),
        )

    def tables(self) -> ChainScores:
        """The scores of start, transitions and end as numpy arrays, for `single_chain.py`."""
        return ChainScores(*(part.detach().cpu().numpy() for part in self.chain()))

    def log_partition(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, " B"]:
        """`log Z` of each row, in nats."""
        return log_partition(emissions, *self.chain(), mask)

    def score(
        self, emissions: Float[Tensor, "B T K"], tags: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, " B"]:
        """The score of the path `tags` of each row, from the parameters: an illegal path has a finite score too."""
        return score(emissions, tags, self.start, self.transitions, self.end, mask)

    def nats(
        self, emissions: Float[Tensor, "B T K"], tags: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, " B"]:
        """`log Z - score`, the loss of each row in nats.

        For a legal path this is -log P(tags). Data may break their scheme: where `tags` is illegal, Z has this path
        beside the legal ones. So no loss is negative.
        """
        total, own = self.log_partition(emissions, mask), self.score(emissions, tags, mask)
        if self.legal is None:
            return total - own
        with torch.no_grad():
            start, pairs, end = (part.where(part == -torch.inf, 0.0) for part in self.chain())
            is_legal = score(torch.zeros_like(emissions), tags, start, pairs, end, mask) == 0
        return torch.where(is_legal, total, torch.logaddexp(total, own)) - own

    def expected_nats(
        self, emissions: Float[Tensor, "B T K"], shares: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, ""]:
        """The expected `nats` of all rows together, for paths y that a teacher draws by its probabilities of tags:

            q(y) = Π_t shares_t[y_t] / Σ_y' Π_t shares_t[y'_t], over the legal y

        Its expected counts of tags, pairs and ends are the derivatives of the logarithm of that sum. No gradient
        reaches `shares`.
        """
        own = (emissions, self.start, self.transitions, self.end)
        with torch.enable_grad():
            ends = (torch.zeros_like(part).masked_fill(part == -torch.inf, -torch.inf) for part in self.chain())
            logs = tuple(part.detach().requires_grad_() for part in (shares.clamp(min=LEAST_SHARE).log(), *ends))
            counts = torch.autograd.grad(log_partition(logs[0], logs[1], logs[2], logs[3], mask).sum(), logs)
        scores = torch.stack([(part * count).sum() for part, count in zip(own, counts, strict=True)]).sum()
        return self.log_partition(emissions, mask).sum() - scores

    def marginals(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        """The probability of each tag at each position, zeros at padding. Not differentiable."""
        return marginals(emissions, *self.chain(), mask)

    def best(
        self, emissions: Float[Tensor, "B T K"], mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
        """The most probable tags, 0 at padding, and their scores (Viterbi)."""
        return viterbi(emissions, *self.chain(), mask)

    def best_k(
        self, emissions: Float[Tensor, "B T K"], k: int, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Int[Tensor, "B k T"], Float[Tensor, "B k"]]:
        """The k most probable paths, the best first, and their scores; -inf if a row has fewer paths."""
        return k_best(emissions, *self.chain(), k=k, mask=mask)

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}" + ("" if self.legal is None else ", legal")
