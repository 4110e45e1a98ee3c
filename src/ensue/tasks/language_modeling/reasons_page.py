"""Why a token was expected, and what changes without some units, as sections of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.page import Section
from ensue.inspection.token_page import MOST_SHOWN, shown
from ensue.tasks.language_modeling.view import Explanation, LanguageView
from ensue.text.tokenizer import Tokenizer

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
    wrong = f"The shares may be wrong by {integrated.error:.3g} together: the gradient changes too much along the way."
    numbers = {
        "token": shown(tokenizer.symbol(found.token)),
        "number": found.place + 1,
        "value": integrated.value,
        "baseline": integrated.baseline,
        "difference": difference,
        "integrated": near,
        "note": "" if integrated.is_exact else wrong,
        "colors": {name: _placed(found.place, values) for name, values in _kinds(found).items()},
        "rows": _rows(view, found),
        "states": {
            "kinds": [units.name for units in found.states],
            "lengths": [_placed(found.place, _logarithms(units.values)) for units in found.states],
        },
    }
    return [Section("Why this token", "tasks/language_modeling/explanation.html", numbers)]


def _kinds(found: Explanation) -> dict[str, NDArray[np.float64]]:
    return {
        "integrated gradients": found.integrated.shares,
        "gradient × input": found.products,
        "length of the gradient": found.norms,
    }


def _placed(place: int, values: NDArray[np.float64]) -> list[float | None]:
    """The values of the tokens before a place, as far as the page shows tokens; None for the others, and for what is no
    number.
    """
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
