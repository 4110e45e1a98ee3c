"""A teacher's answers: the probabilities of labels that another model gave texts or words, as a file of JSON lines.

Source: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network". For classifiers the file is what `ensue
predict --json` prints, so any model can be a teacher.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.lines import Lines, is_blank
from ensue.errors import DataError
from ensue.parsing import ParseError, parse_json

EXPECTED = 'expected {"texts": [...], "probabilities": {LABEL: NUMBER, ...}}'
EXPECTED_WORDS = 'expected {"tokens": [...], "probabilities": [{TAG: NUMBER, ...}, ...]}, one for each token'
Shares = Mapping[str, float]


class Answer(NamedTuple):
    """Texts (one, or a pair) with the probability of each label, of sum 1; or words with `probabilities` each."""

    texts: tuple[str, ...]
    probabilities: Sequence[Shares]


def read_answers(path: str | Path, *, of_words: bool = False) -> Iterator[Answer]:
    """The answers of a file of JSON lines with `texts`, `text`, or `text1` and `text2`, and `probabilities`; `of_words`
    with `tokens` and a list of probabilities.

    Raises DataError (file:line) for a line that is no such object, and for probabilities whose sum is not 1 (± 0.01).
    """
    expected = EXPECTED_WORDS if of_words else EXPECTED
    for number, line in Lines.of(Path(path)):
        if is_blank(line):
            continue
        try:
            found = parse_json(line)
        except ParseError as error:
            raise DataError(str(error), path, number) from None
        found = found if isinstance(found, dict) else {}
        texts, rows = _words(found) if of_words else _texts(found)
        if not all(map(_is_text, texts)) or (not of_words and not 1 <= len(texts) <= 2):
            raise DataError(expected, path, number)
        if not isinstance(rows, list) or (of_words and len(rows) != len(texts)):
            raise DataError(expected, path, number)
        yield Answer(texts, [_checked(shares, expected, path, number) for shares in rows])


def _checked(shares: Any, expected: str, path: str | Path, line: int) -> Shares:
    if not isinstance(shares, dict) or not all(map(_is_share, shares.values())):
        raise DataError(expected, path, line)
    if any(label != label.strip() or not label or not _is_text(label) for label in shares):
        raise DataError("a label is empty, has blanks around it, or half a surrogate pair", path, line)
    total = math.fsum(shares.values())
    if abs(total - 1) > 0.01:
        raise DataError(f"the probabilities have the sum {total:.4g}; expected 1", path, line)
    return {label: share / total for label, share in shares.items()}


class Told:
    """The mean of what a file of answers says of each text, by its words as `read` gives them of an answer."""

    def __init__(self, path: str, read: Callable[[Answer], Hashable], *, of_words: bool = False) -> None:
        found: dict[Hashable, list[Sequence[Shares]]] = {}
        for answer in read_answers(path, of_words=of_words):
            found.setdefault(read(answer), []).append(answer.probabilities)
        self.path = path
        self.means = {words: list(map(_mean, zip(*told, strict=True))) for words, told in found.items()}
        self.names = {name for rows in self.means.values() for shares in rows for name in shares}

    def put(
        self, texts: Iterable[Hashable], rows: NDArray[np.float32], starts: Iterable[int], ids: Mapping[str, int]
    ) -> NDArray[np.float32]:
        """The probabilities (N, K) of the labels of many texts, whose rows begin at `starts`, written over those of a
        text of which the file says something. Raises DataError if it says nothing of any.
        """
        found = 0
        for words, start in zip(texts, starts, strict=True):
            said = self.means.get(words, ())
            for row, shares in zip(rows[start : start + len(said)], said, strict=True):
                row[:] = 0
                row[[ids[name] for name in shares]] = list(shares.values())
            found += words in self.means
        if not found:
            raise DataError("says nothing of the training texts", self.path)
        return rows

    def __len__(self) -> int:
        return len(self.means)


def _mean(told: Sequence[Shares]) -> Shares:
    if len(told) == 1:
        return told[0]
    return {name: sum(one.get(name, 0.0) for one in told) / len(told) for name in set().union(*told)}


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


def _texts(found: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """The values in the place of texts, and of the rows of probabilities."""
    rows = [found.get("probabilities")]
    if "text1" in found:
        return (found["text1"], found.get("text2")), rows
    texts = found.get("texts", found.get("text"))
    return tuple(texts) if isinstance(texts, list) else (texts,), rows


def _words(found: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """The values in the place of words, and of the rows of probabilities."""
    words = found.get("tokens")
    return tuple(words) if isinstance(words, list) else (None,), found.get("probabilities")
