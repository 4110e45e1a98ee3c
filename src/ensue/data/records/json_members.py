"""Values replaced in the text of a JSON object. All other characters stay as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping

_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)  # numbers may have more digits than Python reads
_WHITE = " \t\r\n"


def with_values(text: str, values: Mapping[str, str], *, ensure_ascii: bool) -> str:
    """The text with these values (JSON texts) in its first object: in place of its own, or after them.

    New keys are written like the others: each on a line, or with or without blanks after commas and colons.
    """
    own = members(text)
    opening = text.index("{") + 1
    lead = text[opening : _behind_white(text, opening)]
    blank = " " if has_blanks(text) else ""
    comma = "," + (lead if "\n" in lead else blank)
    added = [f"{json.dumps(key, ensure_ascii=ensure_ascii)}:{blank}{values[key]}" for key in values if key not in own]
    end = max((end for _, end in own.values()), default=opening)
    text = text[:end] + (comma if own and added else "") + comma.join(added) + text[end:]
    for key in sorted(own.keys() & values.keys(), key=lambda key: -own[key][0]):
        start, stop = own[key]
        text = text[:start] + values[key] + text[stop:]
    return text


def has_blanks(text: str) -> bool:
    """Whether a blank stands before the first value of the first object, or there is no value."""
    return all(text[start - 1] in _WHITE for start, _ in list(members(text).values())[:1])


def members(text: str) -> dict[str, tuple[int, int]]:
    """Where the value of each key starts and ends in the first object of a text, which is known to be JSON."""
    found: dict[str, tuple[int, int]] = {}
    place = text.index("{") + 1
    while not text.startswith("}", place := _behind_white(text, place)):
        place = _behind_white(text, place + 1 if text[place] == "," else place)
        key, place = _DECODER.raw_decode(text, place)
        start = _behind_white(text, _behind_white(text, place) + 1)
        _, place = _DECODER.raw_decode(text, start)
        found[key] = (start, place)
    return found


def _behind_white(text: str, place: int) -> int:
    while text[place] in _WHITE:
        place += 1
    return place
