"""The predictions at each position: surprisal, rank, entropy and the most probable tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.types import exact

NO_TOKEN = -1
"""The target of a position where no token stands: the end of a text, or a mask."""
MOST_OPTIONS = 5
"""The most tokens that are kept of a position."""


class Predictions(NamedTuple):
    """The `surprisals` (T,) of the tokens that stand at T positions, in nats, and their `ranks` (T,) from 1 on; the
    `entropies` (T,) in nats; the most probable `ids` (T, K) and their `probabilities` (T, K), the largest first.

    Where no token stands, the surprisal is NaN and the rank 0.
    """

    surprisals: NDArray[np.float64]
    ranks: NDArray[np.int64]
    entropies: NDArray[np.float64]
    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    @classmethod
    def of(cls, logits: Tensor, targets: NDArray[np.int64]) -> Self:
        """The predictions of logits (T, V) for targets (T,), which may be `NO_TOKEN`."""
        log_p = exact(logits).log_softmax(-1)
        stands = torch.from_numpy(targets != NO_TOKEN).to(log_p.device)
        chosen = log_p.gather(1, torch.from_numpy(np.maximum(targets, 0)).to(log_p.device)[:, None])
        best = log_p.topk(min(MOST_OPTIONS, log_p.shape[1]), dim=1)
        found = (
            torch.where(stands, -chosen[:, 0], torch.nan),
            torch.where(stands, 1 + (log_p > chosen).sum(1), 0),
            torch.special.entr(log_p.exp()).sum(1),
            best.indices,
            best.values.exp(),
        )
        return cls(*(part.cpu().numpy() for part in found))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The predictions of some positions, then those of others."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
