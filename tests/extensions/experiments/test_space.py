"""What a trial is asked for, by the kind of range."""

from types import SimpleNamespace
from typing import Any

import pytest

from ensue.extensions.experiments.search.space import Choice, Range, _range


def asked(part: Range | Choice) -> Any:
    """How a value is drawn: what kind, and with which options."""
    trial = SimpleNamespace(
        suggest_int=lambda key, *bounds, **options: ("int", *bounds, options),
        suggest_float=lambda key, *bounds, **options: ("float", *bounds, options),
        suggest_categorical=lambda key, choices: choices[-1],
    )
    return part.drawn(trial, "train.steps")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Range(1, 64, log=True), ("int", 1, 64, {"log": True, "step": 1})),
        (Range(1, 64, step=3), ("int", 1, 64, {"log": False, "step": 3})),
        (Range(0, 1, step=0.25), ("float", 0, 1, {"log": False, "step": 0.25})),
        (Range(1e-4, 1e-2, log=True), ("float", 1e-4, 1e-2, {"log": True, "step": None})),
        (Choice((1, [2, "b"])), [2, "b"]),
    ],
)
def test_what_a_trial_is_asked_for(part: Range | Choice, expected: object) -> None:
    assert asked(part) == expected


def test_a_step_may_be_the_whole_range() -> None:
    assert _range({"low": 1, "high": 3, "step": 2}, "k") == Range(1, 3, step=2)
