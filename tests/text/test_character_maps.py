"""Valid maps of characters are read, and damaged maps, at which the library panics, are refused."""

import base64
import json
import os
from typing import Any

import numpy as np
import pytest

from ensue.text import pieces
from ensue.text.pieces import check_character_maps, library_errors, library_tokenizer

SIZE = 256
STRINGS = "A\0ß\0".encode()


def units(**changes: int) -> np.ndarray[Any, Any]:
    """Return a map from a to A, a double array with a leaf and its value. Keywords replace its three units."""
    result = np.zeros(SIZE, "<u4")
    result[0] = changes.get("root", 1 << 10)  # the children of the root are at 1 ^ byte
    leaf_index = 1 ^ ord("a")
    result[leaf_index] = changes.get("leaf", ord("a") | 1 << 8 | (leaf_index ^ 2) << 10)  # and its value is at 2
    result[2] = changes.get("value", 1 << 31)
    return result


def encoded(array: np.ndarray[Any, Any], strings: bytes = STRINGS, size: int = 4 * SIZE) -> str:
    return base64.b64encode(size.to_bytes(4, "little") + array.tobytes() + strings).decode()


def tokenizer(charsmap: Any) -> dict[str, Any]:
    normalizer = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "pre_tokenizer": None,
        "normalizer": {"type": "Sequence", "normalizers": [normalizer]}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"A": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
    }  # fmt: skip


def test_a_valid_map_is_read() -> None:
    result = library_tokenizer(tokenizer(encoded(units())))
    assert result.normalizer.normalize_str("abé") == "Abé"
    assert result.encode("a").ids == [0]


@pytest.mark.parametrize(
    "charsmap",
    [
        "", "AAAA", "no base64!", None, 3,
        encoded(units(), size=4 * SIZE + 400), encoded(units(), size=6), encoded(units(), strings=b"A\0\xff"),
        encoded(units(root=255 << 10 | 1 << 9)), encoded(units(leaf=ord("a") | 300 << 10)),
        encoded(units(value=1 << 31 | 99)), encoded(units(value=1 << 31 | 3)),
    ],
    ids=[
        "empty", "short", "no base64", "null", "a number", "cut off", "part of a unit", "no UTF-8", "a root outside",
        "a unit points out", "a value points out", "a value points into a character",
    ],
)  # fmt: skip
def test_a_damaged_map_is_an_error_of_one_line(charsmap: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"^the normalizer Precompiled has a damaged map of characters$"):
        library_tokenizer(tokenizer(charsmap))
    assert capfd.readouterr().err == ""


def test_a_panic_of_the_library_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pieces, "check_character_maps", lambda normalizer: None)
    with pytest.raises(ValueError, match="Cannot parse precompiled_charsmap") as caught:
        library_tokenizer(tokenizer("AAAA"))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_other_messages_on_stderr_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with library_errors():
        os.write(2, b"a warning\n")
    with pytest.raises(KeyboardInterrupt), library_errors():
        raise KeyboardInterrupt
    assert capfd.readouterr().err == "a warning\n"


def test_other_normalizers_are_checked_by_the_library() -> None:
    for normalizer in (None, {"type": "Lowercase"}, {"type": "Sequence", "normalizers": []}, [], "x"):
        check_character_maps(normalizer)
    with pytest.raises(ValueError, match=r"."):
        library_tokenizer(json.loads('{"normalizer": 3}'))
