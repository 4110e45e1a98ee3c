"""The page for a text in a masked language model: what it expects at each token, and its attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.encoder import Attention, attention_of
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.token_page import NO_TOKEN, Predictions, shown, text_section, title_of
from ensue.inspection.units import pieces_of
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.masked_language_modeling.token_windows import pseudo_logits
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.wordpiece import BEGIN, MASK, SEPARATOR

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


ABOUT = (
    "Each token in turn is hidden alone: the stronger its color, the more it surprises the model that knows all "
    "others. Full color is a guess among all tokens. Rest on a token to see what was expected in its place."
)


def masked_sections(view: MaskedView, coder: MaskedTokenizer, context: int) -> list[Section]:
    """All sections. `context` is the number of positions that the model reads at once."""
    text = text_section(
        view.tokens,
        view.ids.tolist(),
        view.predictions,
        coder.symbol,
        length=view.length,
        vocabulary_size=coder.vocabulary_size,
        about=ABOUT,
    )
    positions = [BEGIN, *view.tokens[: context - 2], SEPARATOR]
    about = "What each token looks at, in each head of each layer, while the text is read as it is."
    return [
        *_masks(view, coder),
        text,
        *attention_section(view.attention, positions, length=view.length + 2, about=about),
    ]


def _masks(view: MaskedView, coder: MaskedTokenizer) -> list[Section]:
    places = np.flatnonzero(view.is_mask).tolist()
    if not places:
        return []
    found = view.predictions
    rows = [
        (
            f"{MASK} {number}",
            [(shown(coder.symbol(id)), p) for id, p in zip(found.ids[place], found.probabilities[place], strict=True)],
        )
        for number, place in enumerate(places, start=1)
    ]
    return [Section("In place of the masks", "tasks/masked_language_modeling/masks.html", {"rows": rows})]


def inspect_masked(
    model: MaskedLanguageModel, coder: MaskedTokenizer, text: str, facts: Mapping[str, str]
) -> Inspection:
    """A text in a model, as `MaskedLanguagePipeline.inspect` says; `facts` are those of the model."""
    check_type("the text", text, str, "a string")
    ids = coder.encode_masked(text).ids
    if not len(ids):
        raise EnsueError("there is nothing to look into: the text has no tokens")
    view = view_masked(model, coder, ids)
    sections = masked_sections(view, coder, model.context)
    nats, count = view.predictions.surprisals[~view.is_mask], len(view.tokens)
    of_text = {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        "masks": f"{int(view.is_mask.sum()):,}",
        **({"nats per hidden token": f"{nats.mean():.4f}"} if len(nats) else {}),
    }
    return Inspection(title_of(text), view, {**facts, **of_text}, sections)
