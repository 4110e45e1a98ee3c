"""A teacher's answers: the probabilities of labels that another model gave texts, as a file of JSON lines.

Source: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network". The file is what `ensue predict --json`
prints, so any model can be a teacher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json

EXPECTED = 'expected {"texts": [...], "probabilities": {LABEL: NUMBER, ...}}'


class Answer(NamedTuple):
    """The texts that were read (one, or the two of a pair), and the probability of each label, of sum 1."""

    texts: tuple[str, ...]
    probabilities: Mapping[str, float]


def read_answers(path: str | Path) -> Iterator[Answer]:
    """The answers of a file of JSON lines with `texts`, `text`, or `text1` and `text2`, and `probabilities`.

    Raises DataError (file:line) for a line that is no such object, and for probabilities whose sum is not 1 (± 0.01).
    """
    for number, line in Lines.of(Path(path)):
        if is_blank(line):
            continue
        try:
            found = parse_json(line)
        except ParseError as error:
            raise DataError(str(error), path, number) from None
        found = found if isinstance(found, dict) else {}
        texts, shares = _texts(found), found.get("probabilities")
        if not isinstance(shares, dict) or not all(map(_is_share, shares.values())):
            raise DataError(EXPECTED, path, number)
        if not 1 <= len(texts) <= 2 or not all(map(_is_text, texts)):
            raise DataError(EXPECTED, path, number)
        if any(label != label.strip() or not label or not _is_text(label) for label in shares):
            raise DataError("a label is empty, has blanks around it, or half a surrogate pair", path, number)
        total = math.fsum(shares.values())
        if abs(total - 1) > 0.01:
            raise DataError(f"the probabilities have the sum {total:.4g}; expected 1", path, number)
        yield Answer(texts, {label: share / total for label, share in shares.items()})


def softened(shares: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Probabilities (..., K) whose logits are divided by the temperature; a 0 stays 0."""
    powers = (shares / shares.max(-1, keepdims=True)) ** (1 / temperature)
    found: NDArray[np.float64] = powers / powers.sum(-1, keepdims=True)
    return found


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_text(value: Any) -> bool:
    """Whether it is a string without half a surrogate pair."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def _texts(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values in the place of texts."""
    if "text1" in found:
        return found["text1"], found.get("text2")
    texts = found.get("texts", found.get("text"))
    return tuple(texts) if isinstance(texts, list) else (texts,)
