"""Values stored as JSON are read back equal, and invalid content is an error of one line with its place."""

import json
from typing import Any, NamedTuple

import pytest

from ensue.stored import Bounds, SchemaError, Stored, read
from ensue.text.vocabulary import Vocabulary


class Place(NamedTuple):
    number: int
    name: str = ""


class Weights(Stored):
    def __init__(self, words: Vocabulary, weights: tuple[float, ...]) -> None:
        self.words, self.weights = words, weights


class Record(Stored):
    kind = "whole"
    optional_keys = frozenset({"note"})
    unstored = frozenset({"cache"})

    def __init__(
        self,
        parts: dict[str, Weights],
        places: list[Place],
        ids: frozenset[int],
        note: str | None = None,
        cache: int = 0,
    ) -> None:
        self.parts, self.places, self.ids, self.note = parts, places, ids, note


RECORD = Record({"a": Weights(Vocabulary(["x", "y"]), (1.0, 0.5))}, [Place(1, "one")], frozenset({3, 1}))
CONTENT = {
    "kind": "whole", "format_version": 1, "parts": {"a": {"words": ["x", "y"], "weights": [1.0, 0.5]}},
    "places": [[1, "one"]], "ids": [1, 3], "note": None,
}  # fmt: skip


def test_a_stored_value_is_read_back_equal() -> None:
    assert RECORD.to_json() == CONTENT
    again = Record.from_json(json.loads(json.dumps(CONTENT)))
    assert again.to_json() == CONTENT
    assert (again.places, again.ids) == (RECORD.places, RECORD.ids)
    earlier = {key: value for key, value in CONTENT.items() if key != "note"}
    assert Record.from_json(earlier | {"other": 3}).to_json() == CONTENT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object, found []"),
        (CONTENT | {"kind": "half"}, "kind: expected 'whole', found 'half'"),
        (CONTENT | {"format_version": True}, "format_version: expected a number, found True"),
        (CONTENT | {"format_version": 2}, "format_version 2 is newer than this program, which reads 1"),
        ({key: value for key, value in CONTENT.items() if key != "ids"}, "no ids"),
        (CONTENT | {"parts": {"a": {"words": ["x"]}}}, "parts.a: no weights"),
        (CONTENT | {"parts": {"a": {"words": ["x", "x"], "weights": []}}}, "parts.a.words: a symbol occurs twice"),
        (CONTENT | {"parts": {"a": {"words": ["x", 3], "weights": []}}}, "parts.a.words.1: expected a string, found 3"),
        (CONTENT | {"parts": {"a": {"words": [], "weights": [[]]}}}, "parts.a.weights.0: expected a number, found []"),
        (CONTENT | {"ids": [float("inf")]}, "ids.0: expected a number, found inf"),
        (CONTENT | {"places": [[1]]}, "places.0: expected a list of 2, found [1]"),
        (CONTENT | {"places": [[1.5, "a"]]}, "places.0.0: expected a number, found 1.5"),
        (CONTENT | {"note": 3}, "note: expected a string, found 3"),
        (CONTENT | {"note": ["x" * 999]}, f"note: expected a string, found ['{'x' * 57}…"),
    ],
)  # fmt: skip
def test_invalid_content_is_an_error_of_one_line_with_its_place(content: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Record.from_json(content)
    assert str(caught.value) == message


def test_numbers_have_bounds() -> None:
    Bounds(0, 3)(3)
    with pytest.raises(ValueError, match=r"^expected 0 to 3, found 4$"):
        Bounds(0, 3)(4)
    assert read(float, 3) == 3.0
    for number in (10**400, float("nan"), float("inf")):
        with pytest.raises(SchemaError, match="expected a number"):
            read(float, number)
