"""Spans of a text in JSON: `{"start": 0, "end": 3, "label": "PER"}` or `[0, 3, "PER"]`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

TOKEN_KEYS = ("tokens", "words")
LABEL_KEYS = ("labels", "tags", "ner_tags", "pos_tags")
SPAN_KEYS = ("labels", "spans", "entities", "label")
"""The usual keys of a sentence in JSON: for its words, for a label of each word, for spans of its text."""
_NAMES = ("start", "end", "label")


def label_key(names: Collection[str]) -> str:
    """The key of the labels if the user names none; "" if there is none."""
    return next((key for key in (*LABEL_KEYS, *SPAN_KEYS) if key in names), "")


class TextSpan(NamedTuple):
    """The characters (code points) from `start` up to and without `end`."""

    start: int
    end: int
    label: str

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


def is_list_of_spans(value: Any) -> bool:
    """Whether it is a list with spans in it and nothing else."""
    return isinstance(value, list) and bool(value) and all(_parts(item) for item in value)


def text_spans(value: Sequence[Any], text: str, name: str) -> list[TextSpan]:
    """The spans in order. Raises ValueError with a message for the user where they are none of `text`, or overlap."""
    found = []
    for item in value:
        parts = _parts(item)
        if not parts:
            raise ValueError(
                f'"{name}" must hold spans such as {{"start": 0, "end": 3, "label": "PER"}} or [0, 3, "PER"]'
            )
        start, end, label = parts
        if not 0 <= start < end <= len(text):
            raise ValueError(f"the span {parts} is not in the text, which has {len(text)} characters")
        if not label:
            raise ValueError(f"the span {parts} has an empty label")
        found.append(parts)
    found.sort()
    for before, behind in pairwise(found):
        if behind.start < before.end:
            raise ValueError(f"the spans {before} and {behind} overlap")
    return found


def span_list(spans: Sequence[TextSpan], like: Any, name: str) -> list[Any]:
    """The spans in the form of those in `like`, or if it has none, in the usual form under that key."""
    has_lists = isinstance(like[0], list) if isinstance(like, list) and like else name in ("label", "labels")
    return [list(span) if has_lists else span._asdict() for span in spans]


def _parts(item: Any) -> TextSpan | None:
    values = [item.get(name) for name in _NAMES] if isinstance(item, dict) else item
    if isinstance(values, list) and list(map(type, values)) == [int, int, str]:
        return TextSpan(*values)
    return None
