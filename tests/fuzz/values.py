"""Documents of tables and lists with wrong values."""

import copy
import json
from random import Random
from typing import Any

from fuzz import odd


def altered(choose: Random, document: Any, *, max_changes: int = 2) -> Any:
    """Return a copy with 1 to `max_changes` changes at random positions."""
    document = copy.deepcopy(document)
    for _ in range(choose.randint(1, max_changes)):
        document = _altered_once(choose, document)
    return document


def _altered_once(choose: Random, document: Any) -> Any:
    positions = list(_places(document))
    if not positions or choose.random() < 0.03:
        return odd.scalar(choose)
    parent, key = choose.choice(positions)
    match choose.randrange(8):
        case 0:
            del parent[key]
        case 1:
            parent[key] = _deep(choose)
        case 2:
            parent[key] = parent[choose.choice(list(parent))] if isinstance(parent, dict) else choose.choice(parent)
        case 3 if isinstance(parent, dict):
            parent[choose.choice([f"{key}x", key.upper(), odd.string(choose), key[:-1]])] = parent.pop(key)
        case 3:
            choose.shuffle(parent)
        case 4 if isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = choose.choice([-parent[key], parent[key] + 1, float(parent[key]), str(parent[key]), 10**20])
        case _:
            parent[key] = odd.scalar(choose)
    return document


def _places(document: Any) -> Any:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield document, key
        yield from _places(value)


def _deep(choose: Random) -> Any:
    value: Any = 1
    for _ in range(choose.choice([3, 60, 150])):
        value = [value] if choose.random() < 0.5 else {"a": value}
    return value


def as_json(choose: Random, document: Any) -> bytes:
    """Write JSON like Python, with surrogates and NaN, sometimes deeper than any reader allows."""
    text = json.dumps(document, ensure_ascii=choose.random() < 0.5)
    if choose.random() < 0.05:
        text = choose.choice(["[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000, f'{text[:-1]}, "x": {"9" * 5000}}}'])
    return text.encode("utf-8", "surrogatepass")
