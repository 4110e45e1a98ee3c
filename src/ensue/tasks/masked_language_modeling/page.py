"""The sections of a page for a text in a masked language model."""

from __future__ import annotations

import numpy as np

from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Section
from ensue.inspection.token_page import shown, text_section
from ensue.tasks.masked_language_modeling.view import MaskedView
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.wordpiece import BEGIN, MASK, SEPARATOR

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
