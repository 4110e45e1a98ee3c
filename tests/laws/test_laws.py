"""Every layer × every law."""

import pytest

from ensue.testing.laws import OF_CALLS, Subject, check, laws_of

from .table import CASES

SAMPLE = {"window_of_3", "lstm", "input_feeding_of_an_lstm"}
"""Subjects of the laws of calls: a state that is sliced, a compiled step, a cell with dropout inside a step."""
OF_CALLS_CASES = [
    pytest.param(*case.values, id=case.id, marks=[] if case.id in SAMPLE else [pytest.mark.slow]) for case in CASES
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("subject", CASES)
def test_every_law_holds_for_every_layer(subject: Subject) -> None:
    """There is one test for each layer, since the overhead of a thousand tests would double the time."""
    check(laws_of(subject.layer), subject)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("subject", OF_CALLS_CASES)
def test_every_law_of_calls_holds(subject: Subject) -> None:
    check(OF_CALLS, subject)
