"""Views as JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

MOST_NUMBERS = 1 << 20
"""An array with more numbers is left out."""
AT_ONCE = 1 << 12
"""The numbers of an array, or the items of a list, that are written to JSON at a time."""


def as_json(value: Any) -> Any:
    """A view as JSON values: objects of its fields, lists of arrays. What is no number is null.

    In the place of an array of more than `MOST_NUMBERS` stands its shape: `{"shape": [4000, 1024]}`.
    """
    value = _plain(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [as_json(one) for one in value]
    return _listed(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic, float)) else value


def json_pieces(value: Any) -> Iterator[str]:
    """The text of `as_json(value)`, in pieces: nothing large is made, and others may compute in between."""
    value = _plain(value)
    if isinstance(value, Mapping):
        for number, (key, one) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_text(str(key))}:"
            yield from json_pieces(one)
        yield "}" if value else "{}"
    elif isinstance(value, np.ndarray) and value.size > AT_ONCE and value[0].size <= AT_ONCE:
        yield from _cut(value, max(1, AT_ONCE // value[0].size))
    elif isinstance(value, (list, tuple, range)) and set(map(type, value)) <= {str, int, float, bool, type(None)}:
        yield from _cut(value, AT_ONCE)
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.size > AT_ONCE):
        for number, one in enumerate(value):
            yield "," if number else "["
            yield from json_pieces(one)
        yield "]" if len(value) else "[]"
    else:
        yield _text(as_json(value))


def _plain(value: Any) -> Any:
    """The value, with a table in the place of one with fields, and of an array that is too large."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, np.ndarray) and value.size > MOST_NUMBERS:
        return {"shape": list(value.shape)}
    return value


def _cut(values: Any, size: int) -> Iterator[str]:
    """A list or an array, so many items at a time."""
    for start in range(0, len(values), size):
        yield f"{',' if start else '['}{_text(as_json(values[start : start + size]))[1:-1]}"
    yield "]" if len(values) else "[]"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _listed(values: np.ndarray[Any, Any]) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    found = _short(values.astype(np.float64)) if values.dtype.itemsize < 8 else values
    return np.where(np.isfinite(found), found.astype(object), np.array(None)).tolist()


def _short(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers of float32 with nine digits, which tell them apart."""
    with np.errstate(all="ignore"):
        scale = 10.0 ** (8 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & (scale > 0), np.rint(values * scale) / scale, values)
