"""The character map of a SentencePiece normalizer (`Precompiled`), checked before the `tokenizers` library reads it.

A map is a double array, in which a text is looked up byte by byte, and the strings in which its values begin. The
library trusts its numbers, and ends in a panic of Rust where one of them points outside. Source: `darts-clone` (Yata
2008), as sentencepiece writes it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

BYTES = np.arange(1, 256, dtype=np.int64)
_TYPE, _MAP = "Precompiled", "precompiled_charsmap"


def check_character_maps(normalizer: Any) -> None:
    """Raises ValueError for a map, in a normalizer of a tokenizer.json or in a sequence of them, that is none."""
    for encoded in _maps(normalizer):
        try:
            content = base64.b64decode(encoded, validate=True)
            size = int.from_bytes(content[:4], "little")
            units = np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64)
            strings = content[4 + size :]
            strings.decode()
            is_whole = 4 * len(units) == size > 0 and _values_fit(units, strings)
        except (ValueError, TypeError):
            is_whole = False
        if not is_whole:
            raise ValueError(f"the normalizer {_TYPE} has a damaged map of characters")


def _maps(normalizer: Any) -> Iterator[Any]:
    if isinstance(normalizer, dict):
        if normalizer.get("type") == _TYPE:
            yield normalizer.get(_MAP)
        inner = normalizer.get("normalizers")
        for one in inner if isinstance(inner, list) else ():
            yield from _maps(one)


def _values_fit(units: NDArray[np.int64], strings: bytes) -> bool:
    """Whether all that the first unit leads to is inside: each place that a byte may lead to, and each value."""
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels, has_value = units & (1 << 31 | 0xFF), (units >> 8) & 1 == 1
    is_begin = np.append((np.frombuffer(strings, np.uint8) & 0xC0) != 0x80, True)
    seen = np.zeros(len(units), np.bool_)
    nodes = offsets[:1]
    while len(nodes):
        if (nodes | 0xFF).max() >= len(units):
            return False
        seen[nodes] = True
        places = nodes[:, None] ^ BYTES
        places = places[labels[places] == BYTES]
        nodes = np.unique(places ^ offsets[places])
        valued = (places ^ offsets[places])[has_value[places]]
        if len(nodes) and nodes[-1] >= len(units):
            return False
        values = units[valued] & 0x7FFFFFFF
        if len(values) and (values.max() > len(strings) or not is_begin[values].all()):
            return False
        nodes = nodes[~seen[nodes]]
    return True
