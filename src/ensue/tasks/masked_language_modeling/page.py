"""The page about a text in a masked language model: its predictions for each hidden token, and its attention."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.errors import EnsueError, check_type
from ensue.inspection.encoder import LayerAttention, record_attention
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.token_page import NO_TOKEN, Predictions, make_title, show_token, text_section
from ensue.inspection.units import decode_tokens
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.masked_language_modeling.token_windows import pseudo_logits
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.wordpiece import BEGIN, MASK, SEPARATOR

MAX_TOKENS = 512
"""The maximum number of tokens of a text on a page. A token needs a pass of the model in which the token is hidden."""


@dataclass(frozen=True)
class MaskedView:
    """A text in a masked language model: the first T of its `length` tokens."""

    tokens: tuple[str, ...]
    """The text of each token; `[MASK]` for a mask."""
    ids: NDArray[np.int64]
    is_mask: NDArray[np.bool_]
    length: int
    """The number of tokens of the complete text."""
    predictions: Predictions
    """The predictions at each position, with its token hidden. At a mask, special tokens have the probability 0."""
    attention: list[LayerAttention]
    """The attention (H, A, A) in the first window: [CLS], A - 2 tokens, [SEP]."""


@torch.inference_mode()
def view_masked(model: MaskedLanguageModel, coder: MaskedTokenizer, ids: NDArray[np.int64]) -> MaskedView:
    """Return the view of a text of at least one token. A long text is read in the windows of `score`."""
    ids, length = ids[:MAX_TOKENS], len(ids)
    is_mask = ids == coder.mask_id
    framed = torch.from_numpy(coder.add_frame(ids[: model.context - 2])[None]).to(device_of(model))
    with evaluating(model):
        attention = record_attention(model.layers, model.input(framed))
    assert attention is not None, "MAX_TOKENS exceeds MAX_ATTENTION_WORDS"
    pairs = zip(ids.tolist(), decode_tokens(coder.decoder(), ids.tolist()), strict=True)
    texts = tuple(f" {coder.symbol(id)}" if id == coder.mask_id else piece for id, piece in pairs)
    return MaskedView(texts, ids, is_mask, length, _predict_hidden(model, coder, ids, is_mask), attention)


def _predict_hidden(
    model: MaskedLanguageModel, coder: MaskedTokenizer, ids: NDArray[np.int64], is_mask: NDArray[np.bool_]
) -> Predictions:
    special = torch.tensor([coder.padding_id, *coder.special_ids], device=device_of(model))
    targets = np.where(is_mask, NO_TOKEN, ids)
    positions: list[int] = []
    batches: list[Predictions] = []
    for batch, logits in pseudo_logits(model, coder, ids):
        masks = torch.from_numpy(is_mask[batch]).to(logits.device)[:, None]
        fills: Tensor = logits.index_fill(1, special, -torch.inf)
        batches.append(Predictions.of(torch.where(masks, fills, logits), targets[batch]))
        positions += batch
    return Predictions._make(array[np.argsort(positions)] for array in Predictions.joined(batches))


ABOUT = (
    "The model predicts each token from all other tokens. The stronger a token’s color, the more it surprised the "
    "model: full color is a guess among all tokens. Hover over a token to see the predictions for its position."
)


def masked_sections(view: MaskedView, coder: MaskedTokenizer, context: int) -> list[Section]:
    """Return the sections of a page. `context` is the maximum number of positions of the model."""
    text = text_section(view.tokens, view.ids.tolist(), view.predictions, coder, length=view.length, about=ABOUT)
    positions = [BEGIN, *view.tokens[: context - 2], SEPARATOR]
    about = "The attention of each token, in each head of each layer, to the text without hidden tokens."
    attention = attention_section(view.attention, positions, length=view.length + 2, about=about)
    rows = []
    for number, position in enumerate(np.flatnonzero(view.is_mask), start=1):
        fills = zip(view.predictions.ids[position], view.predictions.probabilities[position], strict=True)
        rows.append((f"{MASK} {number}", [(show_token(coder.symbol(id)), probability) for id, probability in fills]))
    masks = Section("In place of the masks", "tasks/masked_language_modeling/masks.html", {"rows": rows})
    return [*([masks] if rows else []), text, *attention]


def inspect_masked(
    model: MaskedLanguageModel, coder: MaskedTokenizer, text: str, facts: Mapping[str, str]
) -> Inspection:
    """Return the page of `MaskedLanguagePipeline.inspect`. `facts` are the values at the top of the page by name."""
    check_type("the text", text, str, "a string")
    ids, _ = coder.encode_masked(text)
    if not len(ids):
        raise EnsueError("nothing to inspect: the text has no tokens")
    view = view_masked(model, coder, ids)
    sections = masked_sections(view, coder, model.context)
    nats, count = view.predictions.surprisals[~view.is_mask], len(view.tokens)
    text_facts = {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        "masks": f"{int(view.is_mask.sum()):,}",
        **({"nats per hidden token": f"{nats.mean():.4f}"} if len(nats) else {}),
    }
    return Inspection(make_title(text), view, {**facts, **text_facts}, sections)
