"""The sections of a page for a text in a language model."""

from __future__ import annotations

from collections.abc import Sequence

from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Section
from ensue.inspection.selection import selection_section
from ensue.inspection.token_page import MOST_SHOWN, text_section
from ensue.inspection.unit_page import chosen_units, follower_section, saturation_section
from ensue.tasks.language_modeling.reasons_page import asks_section, explanation_section, switched_off_section
from ensue.tasks.language_modeling.view import LanguageView
from ensue.text.tokenizer import Tokenizer

ABOUT = (
    "The stronger a token’s color, the more it surprised the model: full color is a guess among all tokens. Rest on a "
    "token to see what was expected in its place."
)


def language_sections(view: LanguageView, tokenizer: Tokenizer, tokens: Sequence[str]) -> list[Section]:
    """All sections. `tokens` are those of the view as they stand in the text, unknown ones too."""
    shown = min(len(view.tokens), MOST_SHOWN)
    text = text_section(
        tokens,
        view.ids.tolist(),
        view.predictions,
        tokenizer.symbol,
        length=view.length,
        vocabulary_size=tokenizer.vocabulary_size,
        about=ABOUT + (" A unit’s color is its value when it has read the token." if view.units else ""),
        units=view.units,
        chosen=chosen_units(view.units, view.correlations, shown),
    )
    positions = ["<start>", *tokens]
    about = "What the model looks at when it has read a token and expects the next one."
    return [
        text,
        asks_section(view, tokenizer),
        *explanation_section(view, tokenizer),
        *switched_off_section(view),
        *selection_section(view.units, shown),
        *follower_section(view.units, list(view.properties), view.correlations),
        *saturation_section(view.units),
        *attention_section(view.attention, positions, length=view.length + 1, about=about),
    ]
