"""The page for a text in a masked language model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.token_page import shown, text_section, title_of
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.masked_language_modeling.view import MaskedView, view_masked
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
    return Inspection(title_of(text), view, {**facts, **_facts(view)}, sections)


def _facts(view: MaskedView) -> dict[str, str]:
    """The facts of the text, at the top of the page."""
    nats, count = view.predictions.surprisals[~view.is_mask], len(view.tokens)
    return {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        "masks": f"{int(view.is_mask.sum()):,}",
        **({"nats per hidden token": f"{nats.mean():.4f}"} if len(nats) else {}),
    }
