"""Closed forms: a uniform model's perplexity is its vocabulary's size."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.metrics.scores import LanguageScores

KEYS = ["nats_per_token", "perplexity", "bits_per_character", "tokens", "characters", "unknown"]


def test_a_uniform_model_of_eight_symbols_has_perplexity_8() -> None:
    scores = LanguageScores(total_nats=100 * math.log(8), tokens=100, characters=300, unknown=4)
    assert scores.perplexity == pytest.approx(8)
    assert scores.bits_per_character == pytest.approx(1)
    assert list(scores.as_json()) == KEYS
    assert scores.as_json()["unknown"] == 4


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 9)), min_size=2))
def test_scores_of_parts_add_up(parts: list[tuple[int, int, int, int]]) -> None:
    total = LanguageScores(0, 0, 0)
    for part in parts:
        total += LanguageScores(*part)
    assert total == LanguageScores(*map(sum, zip(*parts, strict=True)))


def test_infinite_scores_are_null() -> None:
    assert LanguageScores(1e6, 1, 1).perplexity == math.inf
    for scores in (LanguageScores(1e6, 1, 1), LanguageScores(0.0, 0, 0), LanguageScores(math.inf, 1, 1)):
        text = json.dumps(scores.as_json(), allow_nan=False)
        assert json.loads(text)["perplexity"] is None
