"""The page for a text in a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ensue.arguments import check_type, check_whole
from ensue.errors import EnsueError
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.switched_off import switched_off
from ensue.inspection.token_page import MOST_SHOWN, text_section, title_of
from ensue.inspection.unit_page import chosen_units, follower_section, saturation_section, selection_section
from ensue.models.language_model import LanguageModel
from ensue.tasks.language_modeling.reasons_page import asks_section, explanation_section, switched_off_section
from ensue.tasks.language_modeling.view import LanguageView, Question, view_text
from ensue.text.characters import REPLACEMENT, CharacterTokenizer
from ensue.text.tokenizer import UNKNOWN, Tokenizer
from ensue.text.words import WordTokenizer

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
        *saturation_section(view.units, tokens),
        *attention_section(view.attention, positions, length=view.length + 1, about=about),
    ]


def inspect_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    facts: Mapping[str, str],
    at: int | None = None,
    token: str | None = None,
    off: str = "",
) -> Inspection:
    """A text in a model, as `LanguagePipeline.inspect` says; `facts` are those of the model."""
    check_type("the text", text, str, "a string")
    ids = tokenizer.encode(text).astype(np.int64)
    if not len(ids):
        raise EnsueError("there is nothing to look into: the text has no tokens")
    asked = _asked(tokenizer, len(ids), at, token)
    view = view_text(model, tokenizer, ids, asked=asked, off=switched_off(off))
    sections = language_sections(view, tokenizer, _as_written(view, tokenizer, text))
    unknown = int((view.ids == tokenizer.unknown_id).sum())
    return Inspection(title_of(text), view, {**facts, **_facts(view, unknown)}, sections)


def _as_written(view: LanguageView, tokenizer: Tokenizer, text: str) -> list[str]:
    """The tokens, with what stands in the text in place of an unknown character or word."""
    match tokenizer:
        case CharacterTokenizer():
            written = list(text)
        case WordTokenizer():
            written = tokenizer.written(text)
        case _:
            written = []
    if len(written) != view.length:  # lower case may have more characters
        return list(view.tokens)
    return [
        token.replace(UNKNOWN, own).replace(REPLACEMENT, own) if id == tokenizer.unknown_id else token
        for token, id, own in zip(view.tokens, view.ids.tolist(), written, strict=False)
    ]


def _asked(tokenizer: Tokenizer, length: int, at: int | None, token: str | None) -> Question | None:
    if at is None and token is None:
        return None
    if at is not None:
        check_whole("at", at, 0, length)
        if at == 1:
            raise EnsueError("nothing is read before token 1 that could explain it")
    return Question(at - 1 if at else None, None if token is None else _id_of(tokenizer, token))


def _id_of(tokenizer: Tokenizer, token: str) -> int:
    """The id of a text that is one token. Raises EnsueError for other text."""
    check_type("the token", token, str, "a string")
    ids = tokenizer.encode(token).tolist()
    if len(ids) != 1:
        raise EnsueError(f'"{token:.40}" is {len(ids)} tokens of this model; expected one')
    return int(ids[0])


def _facts(view: LanguageView, unknown: int) -> dict[str, str]:
    """The facts of the text, at the top of the page."""
    nats, count = float(view.predictions.surprisals[:-1].mean()), len(view.tokens)
    return {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        "nats per token": f"{nats:.4f}",
        "perplexity": f"{np.exp(nats):.4g}",
    }
