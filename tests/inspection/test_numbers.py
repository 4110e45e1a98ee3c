"""Views as JSON values."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from ensue.inspection import page
from ensue.inspection.page import as_json


class Pair(NamedTuple):
    name: str
    values: np.ndarray


def test_arrays_are_lists_and_infinite_numbers_are_null() -> None:
    pair = Pair("a", np.array([[1.5, np.nan], [-np.inf, 0.1]]))
    values = as_json({1: [pair], "none": None, "range": range(2, 4), "id": np.int64(7), "inf": float("inf")})
    assert values == {
        "1": [{"name": "a", "values": [[1.5, None], [None, 0.1]]}], "none": None, "range": [2, 3], "id": 7, "inf": None
    }  # fmt: skip
    json.dumps(values, allow_nan=False)


def test_numbers_of_float32_are_short_and_exact() -> None:
    values = np.float32([0.1, -1 / 3, 1e-30, 3.1e4, 0, 12345678])
    json_values = as_json(values)
    assert np.array_equal(np.float32(json_values), values)
    assert max(len(str(value)) for value in json_values) <= 16


def test_a_large_array_is_shown_as_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_NUMBERS", 5)
    assert as_json([np.zeros((2, 3)), np.zeros(5)]) == [{"shape": [2, 3]}, [0.0] * 5]
