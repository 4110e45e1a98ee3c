"""Values that are kept as JSON: what is written is read again, and what is none is one short line with its place."""

import json
from typing import Any, NamedTuple

import pytest

from ensue.stored import Bounds, SchemaError, Stored, read
from ensue.text.vocabulary import Vocabulary


class Place(NamedTuple):
    number: int
    name: str = ""


class Part(Stored):
    def __init__(self, words: Vocabulary, weights: tuple[float, ...]) -> None:
        self.words, self.weights = words, weights


class Whole(Stored):
    kind = "whole"
    optional_keys = frozenset({"note"})
    unstored = frozenset({"cache"})

    def __init__(
        self, parts: dict[str, Part], places: list[Place], ids: frozenset[int], note: str | None = None, cache: int = 0
    ) -> None:
        self.parts, self.places, self.ids, self.note = parts, places, ids, note


WHOLE = Whole({"a": Part(Vocabulary(["x", "y"]), (1.0, 0.5))}, [Place(1, "one")], frozenset({3, 1}))
CONTENT = {
    "kind": "whole", "format_version": 1, "parts": {"a": {"words": ["x", "y"], "weights": [1.0, 0.5]}},
    "places": [[1, "one"]], "ids": [1, 3], "note": None,
}  # fmt: skip


def test_written_and_read_again_it_is_the_same() -> None:
    assert WHOLE.to_json() == CONTENT
    again = Whole.from_json(json.loads(json.dumps(CONTENT)))
    assert again.to_json() == CONTENT
    assert (again.places, again.ids) == (WHOLE.places, WHOLE.ids)
    earlier = {key: value for key, value in CONTENT.items() if key != "note"}
    assert Whole.from_json(earlier | {"other": 3}).to_json() == CONTENT


@pytest.mark.parametrize(
    ("content", "said"),
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
def test_a_value_of_another_form_is_one_line_with_its_place(content: Any, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Whole.from_json(content)
    assert str(caught.value) == said


def test_numbers_have_bounds() -> None:
    Bounds(0, 3)(3)
    with pytest.raises(ValueError, match=r"^expected 0 to 3, found 4$"):
        Bounds(0, 3)(4)
    assert read(float, 3) == 3.0
    for number in (10**400, float("nan"), float("inf")):
        with pytest.raises(SchemaError, match="expected a number"):
            read(float, number)
