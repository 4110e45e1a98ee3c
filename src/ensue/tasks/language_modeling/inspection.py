"""From a language model and a text to an `Inspection`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ensue.arguments import check_type, check_whole
from ensue.errors import EnsueError
from ensue.inspection.page import Inspection
from ensue.inspection.switched_off import switched_off
from ensue.inspection.token_page import title_of
from ensue.models.language_model import LanguageModel
from ensue.tasks.language_modeling.page import language_sections
from ensue.tasks.language_modeling.view import Asked, LanguageView, view_text
from ensue.text.characters import REPLACEMENT, CharacterTokenizer
from ensue.text.tokenizer import UNKNOWN, Tokenizer
from ensue.text.words import WordTokenizer


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
            written = tokenizer.words_as_written(text)
        case _:
            written = []
    if len(written) != view.length:  # lower case may have more characters
        return list(view.tokens)
    return [
        token.replace(UNKNOWN, own).replace(REPLACEMENT, own) if id == tokenizer.unknown_id else token
        for token, id, own in zip(view.tokens, view.ids.tolist(), written, strict=False)
    ]


def _asked(tokenizer: Tokenizer, length: int, at: int | None, token: str | None) -> Asked | None:
    if at is None and token is None:
        return None
    if at is not None:
        check_whole("at", at, 0, length)
        if at == 1:
            raise EnsueError("nothing is read before token 1 that could explain it")
    return Asked(at - 1 if at else None, None if token is None else _id_of(tokenizer, token))


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
