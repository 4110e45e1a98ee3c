"""The page for a text in a language model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_type, check_whole
from ensue.errors import EnsueError
from ensue.inspection.encoder_page import attention_section
from ensue.inspection.page import Inspection, Section
from ensue.inspection.switched_off import switched_off
from ensue.inspection.token_page import MOST_SHOWN, shown, text_section, title_of
from ensue.inspection.unit_page import chosen_units, follower_section, saturation_section, selection_section
from ensue.models.language_model import LanguageModel
from ensue.tasks.language_modeling.view import Explanation, LanguageView, Question, view_text
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
    nats, count = float(view.predictions.surprisals[:-1].mean()), len(view.tokens)
    of_text = {
        "tokens": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        "nats per token": f"{nats:.4f}",
        "perplexity": f"{np.exp(nats):.4g}",
    }
    return Inspection(title_of(text), view, {**facts, **of_text}, sections)


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


MOST_ROWS = 15
LEAST = 1e-30
"""The least length of a gradient whose logarithm is drawn."""


def asks_section(view: LanguageView, tokenizer: Tokenizer) -> Section:
    """The section with the questions that may be asked, and those that were."""
    found, size = view.explanation, len(view.tokens)
    stands = None if found is None else [*view.ids, view.predictions.ids[-1, 0]][found.place]
    numbers = {
        "size": size,
        "at": "" if found is None else (found.place + 1) % (size + 1),
        "token": "" if found is None or found.token == stands else tokenizer.decode([found.token]),
        "off": "; ".join(one.name for one in view.off),
    }
    return Section("Ask", "inspection/asks.html", numbers)


def explanation_section(view: LanguageView, tokenizer: Tokenizer) -> list[Section]:
    """The section of what the tokens before a place give; none if nobody asked."""
    found = view.explanation
    if found is None:
        return []
    integrated, near = found.integrated, len(found.integrated.shares)
    difference = integrated.value - integrated.baseline
    kinds = {
        "integrated gradients": integrated.shares,
        "gradient × input": found.products,
        "length of the gradient": found.norms,
    }
    wrong = f"The shares may be wrong by {integrated.error:.3g} together: the gradient changes too much along the way."
    numbers = {
        "token": shown(tokenizer.symbol(found.token)),
        "number": found.place + 1,
        "value": integrated.value,
        "baseline": integrated.baseline,
        "difference": difference,
        "integrated": near,
        "note": "" if integrated.is_exact else wrong,
        "colors": {name: _placed(found.place, values) for name, values in kinds.items()},
        "rows": _rows(view, found),
        "states": {
            "kinds": [units.name for units in found.states],
            "lengths": [_placed(found.place, _logarithms(units.values)) for units in found.states],
        },
    }
    return [Section("Why this token", "tasks/language_modeling/explanation.html", numbers)]


def _placed(place: int, values: NDArray[np.float64]) -> list[float | None]:
    """The values of the shown tokens before a place; None for other tokens, and for what is no number."""
    behind = max(0, min(place, MOST_SHOWN) - (place - len(values)))
    kept = [float(f"{value:.5g}") if math.isfinite(value) else None for value in values[:behind].tolist()]
    return [*[None] * min(place - len(values), MOST_SHOWN), *kept]


def _logarithms(gradients: NDArray[np.float32]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.linalg.norm(gradients.astype(np.float64), axis=1)
    logarithms: NDArray[np.float64] = np.log10(np.maximum(lengths, LEAST))
    return logarithms


def _rows(view: LanguageView, found: Explanation) -> list[dict[str, Any]]:
    """The tokens that give most."""
    shares, first = found.integrated.shares, found.place - len(found.integrated.shares)
    offset = len(found.norms) - len(shares)
    return [
        {
            "token": shown(view.tokens[first + at]) or "·",
            "number": first + at + 1,
            "share": float(shares[at]),
            "product": float(found.products[offset + at]),
            "norm": float(found.norms[offset + at]),
        }
        for at in np.argsort(-np.abs(shares), kind="stable")[:MOST_ROWS].tolist()
    ]


def switched_off_section(view: LanguageView) -> list[Section]:
    """The section of what changes without the units that are off; none if there are none."""
    if view.predictions_without is None:
        return []
    before, after = view.predictions.surprisals[:-1], view.predictions_without.surprisals[:-1]
    changes = after - before
    numbers = {
        "off": [one.name for one in view.off],
        "before": float(before.mean()),
        "after": float(after.mean()),
        "colors": {"change of surprisal": _placed(len(changes), changes)},
        "rows": [
            {
                "token": shown(view.tokens[at]) or "·",
                "number": at + 1,
                "before": float(before[at]),
                "after": float(after[at]),
            }
            for at in _largest(changes)
        ],
    }
    return [Section("Without some units", "tasks/language_modeling/switched_off.html", numbers)]


def _largest(changes: NDArray[np.float64]) -> Sequence[int]:
    found: list[int] = np.argsort(-np.abs(changes), kind="stable")[:MOST_ROWS].tolist()
    return found
