"""What happens in a masked language model with a text, in numbers: what it expects at each token, and its attention.

`page.py` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.encoder import Attention, attention_of
from ensue.inspection.pieces import pieces_of
from ensue.inspection.predictions import NO_TOKEN, Predictions
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.masked_language_modeling.reading import pseudo_logits
from ensue.text.masked_tokens import MaskedTokenizer

MOST_TOKENS = 512
"""The most tokens of a text that are looked at. Each is hidden once, which takes as many passes."""


@dataclass(frozen=True)
class MaskedView:
    """A text of T tokens, of which some may be masks, as far as it was looked at; all of it has `length` tokens.

    `predictions` are what is expected at each of the T places if it alone is hidden, beside the masks. At a mask
    special tokens have no probability. The attention (H, A, A) is that of the first window: [CLS], A - 2 tokens, [SEP].
    """

    tokens: tuple[str, ...]
    """The text of each token; that of a mask is `[MASK]`."""
    ids: NDArray[np.int64]
    is_mask: NDArray[np.bool_]
    length: int
    predictions: Predictions
    attention: list[Attention]


@torch.inference_mode()
def view_masked(model: MaskedLanguageModel, coder: MaskedTokenizer, ids: NDArray[np.int64]) -> MaskedView:
    """The view of a text of one token at least. A long one is read in windows, as `score` does."""
    kept = ids[:MOST_TOKENS]
    is_mask = kept == coder.mask_id
    framed = torch.from_numpy(coder.framed(kept[: model.context - 2])[None]).to(device_of(model))
    with evaluating(model):
        attention = attention_of(model.layers, model.input(framed))
    assert attention is not None, "so many positions are always looked at"
    return MaskedView(
        _pieces(coder, kept), kept, is_mask, len(ids), _predictions(model, coder, kept, is_mask), attention
    )


def _predictions(
    model: MaskedLanguageModel, coder: MaskedTokenizer, ids: NDArray[np.int64], is_mask: NDArray[np.bool_]
) -> Predictions:
    special = torch.tensor([coder.padding_id, *coder.special_ids], device=device_of(model))
    targets = np.where(is_mask, NO_TOKEN, ids)
    places: list[int] = []
    parts: list[Predictions] = []
    for some, logits in pseudo_logits(model, coder, ids):
        masks = torch.from_numpy(is_mask[some]).to(logits.device)[:, None]
        fills: Tensor = logits.index_fill(1, special, -torch.inf)
        parts.append(Predictions.of(torch.where(masks, fills, logits), targets[some]))
        places += some
    return Predictions._make(array[np.argsort(places)] for array in Predictions.joined(parts))


def _pieces(coder: MaskedTokenizer, ids: NDArray[np.int64]) -> tuple[str, ...]:
    pieces = pieces_of(coder.decoder(), ids.tolist())
    return tuple(
        f" {coder.symbol(id)}" if id == coder.mask_id else piece for id, piece in zip(ids.tolist(), pieces, strict=True)
    )
