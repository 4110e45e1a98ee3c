"""The linear-chain conditional random field: a head that scores sequences of tags.

The module has the scores of tag pairs and of both ends. `chain.py` computes sums over paths, and the best paths.
The module is not a layer: it maps emission scores (B, T, K) to a distribution over paths.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.heads.chain import Emissions, k_best, log_partition, marginals, score, viterbi
from ensue.nn.heads.single_chain import ChainScores
from ensue.types import Mask

MIN_PROBABILITY = 1e-12
"""The minimum of a teacher's tag probabilities, so that all legal paths have a positive probability."""


class LegalTags(NamedTuple):
    """The tags that may begin a path, pairs of adjacent tags (row before column), and tags that may end a path."""

    start: Bool[Tensor, " K"]
    pairs: Bool[Tensor, "K K"]
    end: Bool[Tensor, " K"]


class LinearChainCRF(nn.Module):
    """A linear-chain CRF (Lafferty et al. 2001) with neural emissions and scores of the ends (Lample et al. 2016):

        score(x, y) = start[y_1] + Σ_t e_t[y_t] + Σ_t A[y_{t-1}, y_t] + end[y_T]
        P(y | x) = exp score(x, y) / Z(x)      Z(x) = Σ_y exp score(x, y), over the legal y

    All scores of the module start at zero. In every method `emissions` are (B, T, K) and `mask` (B, T) is True on real
    positions, which come first (None: all). Values at padding have no effect. An empty row has one path, the empty
    path, with the score 0. Sums are computed in float64, also under autocast; in float32 if the device has no float64,
    or with `in_float32`. Raises ValueError if `legal` has another number of tags than `num_tags`.
    """

    in_float32 = False
    """Whether `log_partition` may be computed in float32 by a C function, which is faster."""

    def __init__(self, num_tags: int, *, legal: LegalTags | None = None) -> None:
        super().__init__()
        K = self.num_tags = num_tags
        if legal is not None and [tuple(table.shape) for table in legal] != [(K,), (K, K), (K,)]:
            raise ValueError(f"legal has {len(legal.start)} tags; expected num_tags = {K}")
        self.start, self.end = nn.Parameter(torch.zeros(K)), nn.Parameter(torch.zeros(K))
        self.transitions = nn.Parameter(torch.zeros(K, K))
        for name, table in zip(LegalTags._fields, legal or (None, None, None), strict=True):
            self.register_buffer(f"legal_{name}", table, persistent=False)

    @property
    def legal(self) -> LegalTags | None:
        """The legal tags; None if all paths are legal."""
        tables = [getattr(self, f"legal_{name}") for name in LegalTags._fields]
        return None if tables[0] is None else LegalTags(*tables)

    def chain(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores of start, transitions and end; -inf if illegal."""
        if self.legal is None:
            return self.start, self.transitions, self.end
        scores = zip((self.start, self.transitions, self.end), self.legal, strict=True)
        start, transitions, end = (table.masked_fill(~legal, -torch.inf) for table, legal in scores)
        return start, transitions, end

    def tables(self) -> ChainScores:
        """Return the scores of start, transitions and end as numpy arrays, for `single_chain.py`."""
        scores = [table.detach().cpu().numpy() for table in (self.start, self.transitions, self.end)]
        pairs = zip(self.legal or (), scores, strict=False)
        return ChainScores(*[np.where(legal.cpu().numpy(), table, -np.inf) for legal, table in pairs] or scores)

    def log_partition(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, " B"]:
        """Return `log Z` of each row, in nats."""
        return log_partition(emissions, *self.chain(), mask, in_float32=self.in_float32)

    def score(self, emissions: Emissions, tags: Int[Tensor, "B T"], mask: Mask = None) -> Float[Tensor, " B"]:
        """Return the score of the path `tags` of each row. The scores of illegal paths are finite, too."""
        return score(emissions, tags, self.start, self.transitions, self.end, mask)

    def nats(self, emissions: Emissions, tags: Int[Tensor, "B T"], mask: Mask = None) -> Float[Tensor, " B"]:
        """Return `log Z - score`, the loss of each row in nats.

        For a legal path, the loss is -log P(tags). For an illegal path, as in data with errors, Z also includes this
        path, so that the loss is not negative.
        """
        total, gold = self.log_partition(emissions, mask), self.score(emissions, tags, mask)
        if self.legal is None:
            return total - gold
        with torch.no_grad():
            is_legal = score(emissions, tags, *self.chain(), mask) > -torch.inf
        return torch.where(is_legal, total, torch.logaddexp(total, gold)) - gold

    def expected_nats(
        self, emissions: Emissions, shares: Float[Tensor, "B T K"], mask: Mask = None
    ) -> Float[Tensor, ""]:
        """Return the expected `nats`, summed over rows, of paths y drawn from a teacher's tag probabilities `shares`:

            q(y) = Π_t shares_t[y_t] / Σ_y' Π_t shares_t[y'_t], over the legal y

        Expected tag, pair and end counts are derivatives of log Σ_y' Π_t shares_t[y'_t]. `shares` get no gradient.
        """
        tables = (emissions, self.start, self.transitions, self.end)
        with torch.enable_grad():
            tables_q = (torch.zeros_like(x).masked_fill(x == -torch.inf, -torch.inf) for x in self.chain())
            logs = tuple(x.detach().requires_grad_() for x in (shares.clamp(min=MIN_PROBABILITY).log(), *tables_q))
            counts = torch.autograd.grad(log_partition(logs[0], logs[1], logs[2], logs[3], mask).sum(), logs)
        scores = torch.stack([(table * count).sum() for table, count in zip(tables, counts, strict=True)]).sum()
        return self.log_partition(emissions, mask).sum() - scores

    def marginals(self, emissions: Emissions, mask: Mask = None) -> Float[Tensor, "B T K"]:
        """Return the probability of each tag at each position, 0 at padding. Not differentiable."""
        return marginals(emissions, *self.chain(), mask)

    def best(self, emissions: Emissions, mask: Mask = None) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
        """Return the most probable tags, 0 at padding, and their scores (Viterbi)."""
        return viterbi(emissions, *self.chain(), mask)

    def best_k(
        self, emissions: Emissions, k: int, mask: Mask = None
    ) -> tuple[Int[Tensor, "B k T"], Float[Tensor, "B k"]]:
        """Return the k most probable paths, the best first, and their scores; -inf if a row has fewer paths."""
        return k_best(emissions, *self.chain(), k=k, mask=mask)

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}" + ("" if self.legal is None else ", legal")
