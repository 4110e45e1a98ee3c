"""Text and numbers for a page: escaped, cut to a width, invisible characters made visible; views as JSON; templates.

A template stands beside the Python file that has its numbers, and is named by its path in the package.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape
from rich.console import Console
from rich.text import Text

from ensue.interruption import check_interrupted
from ensue.text.boundaries import is_boundary
from ensue.version import package_text

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


if TYPE_CHECKING:  # it is imported with the first page
    from jinja2 import Environment


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
LONGEST_WORD = 300
"""The most characters of a word in a text."""
NARROW, WIDE = 7.2, 13.5
"""Pixels of a character at 13 pixels."""


def clean(text: str) -> str:
    """Characters that no document may hold (control characters, halves of characters) become U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)


def escaped(text: str) -> Markup:
    """For content and attributes."""
    return escape(clean(text))


def written(piece: str) -> Markup:
    """A token in a text; one without text has a dot, and a line end a sign."""
    return escaped(clipped(piece, LONGEST_WORD) or "·").replace("\n", Markup("<i>↵</i>\n"))


def visible(character: str) -> str:
    """One code point as a letter by itself: a mark sits on a circle, what has no shape shows its number."""
    category = unicodedata.category(character)
    if category.startswith("M") and not "\ufe00" <= character <= "\ufe0f":
        return "\u25cc" + character
    if category[0] in "CZ" or category.startswith("M"):
        return f"{ord(character):04X}"
    return character


def clipped(text: str, most: int = 16) -> str:
    """At most so many characters, cut between graphemes."""
    if len(text) <= most:
        return text
    cut = most - 1
    while cut > 1 and not is_boundary(text, cut):
        cut -= 1
    return text[:cut] + "…"


def width_of(text: str) -> float:
    """The approximate width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return wide * WIDE + (len(text) - wide - marks) * NARROW


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, as a minus and not a hyphen."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def plain(value: float, digits: int = 2) -> str:
    """A number with a minus sign in place of a hyphen."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def short(value: float, digits: int = 5) -> str:
    """A number of any size with a few digits; a value that is missing is called so."""
    return "missing" if math.isnan(value) else f"{value:.{digits}g}".replace("-", "−")


def share(value: float) -> str:
    """A probability that is not rounded to 0 or 1 unless it is exactly that."""
    if 0 < value < 0.001:
        return "<.001"
    if 0.999 < value < 1:
        return ">.999"
    return f"{value:.3f}".removeprefix("0")


def drawn(template: str, **numbers: Any) -> Markup:
    """The HTML of a template such as `tasks/labeling/paths.html` with these numbers."""
    pieces = []
    for piece in _environment().get_template(template).generate(numbers):
        check_interrupted()
        pieces.append(piece)
    return Markup("".join(pieces))


def file_text(name: str) -> str:
    """The text of a file of the inspector, such as `page.js`."""
    return package_text(f"inspection/{name}")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415

    found = Environment(
        loader=FunctionLoader(package_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finished,
    )
    found.policies["json.dumps_function"] = _dumped
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    found.filters |= {
        "clipped": clipped, "fixed": _fixed, "plain": plain, "share": share, "short": short, "signed": signed,
        "written": written,
    }  # fmt: skip
    return found


def _dumped(value: Any, **options: Any) -> str:
    """JSON, with null for what is no number, as in a model whose weights are none."""
    try:
        return json.dumps(value, **options)
    except ValueError:
        return json.dumps(as_json(value), **options)


def _finished(value: Any) -> Any:
    """Characters that no document may hold are replaced in every text."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _fixed(value: float, digits: int = 1) -> str:
    """A number with so many digits behind the point."""
    return f"{value:.{digits}f}"


def ansi(console: Console, text: Text) -> str:
    """The text with escapes for the colors of that terminal."""
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    return captured.get().rstrip()
