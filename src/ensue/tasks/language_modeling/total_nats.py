"""The summed surprisals of texts, each read by itself, in batches."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.models.prompts import padded
from ensue.tasks.texts.scoring import TextScorer
from ensue.types import exact

BATCH_TOKENS = 4096
LONGEST_IN_BATCH = 512
"""The most tokens of a sentence that is read in a batch. A longer one is read by itself, in pieces."""


@torch.inference_mode()
def total_nats(model: LanguageModel, texts: list[NDArray[np.int64]], *, start_id: int) -> NDArray[np.float64]:
    """The summed nats of each of `texts` (arrays of ids), each read by itself after `start_id`."""
    totals = np.zeros(len(texts))
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    longest = min(LONGEST_IN_BATCH, model.context or LONGEST_IN_BATCH)
    with evaluating(model):
        while order:
            length = len(texts[order[-1]])
            rows = max(1, BATCH_TOKENS // max(1, length)) if length <= longest else 1
            chosen, order = order[-rows:], order[:-rows]
            some = [texts[number] for number in chosen]
            if length <= longest:
                totals[chosen] = _batch_nats(model, some, start_id)
            else:
                totals[chosen] = TextScorer(model, start_id=start_id).feed(some[0]).sum()
    return totals


def _batch_nats(model: LanguageModel, texts: list[NDArray[np.int64]], start_id: int) -> NDArray[np.float64]:
    """`total_nats` of texts in one batch. Padding comes after all tokens that count, so it needs no mask."""
    targets, mask = padded(texts)
    inputs = np.column_stack((np.full(len(texts), start_id), targets))[:, :-1]
    device = device_of(model)
    nats, _ = model.nats(
        torch.from_numpy(np.ascontiguousarray(inputs)).to(device), torch.from_numpy(targets).to(device)
    )
    totals: NDArray[np.float64] = np.where(mask, exact(nats).cpu().numpy(), 0.0).sum(1)
    return totals
