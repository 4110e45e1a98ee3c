"""Every layer × every law."""

import pytest

from ensue.testing.laws import OF_CALLS, Subject, check, laws_of

from .table import CASES

SAMPLE = {"window_of_3", "lstm", "input_feeding_of_an_lstm"}
"""What the laws of calls are about: a state that is cut out, a compiled step, a cell with dropout inside of a step."""
OF_CALLS_CASES = [
    pytest.param(*case.values, id=case.id, marks=[] if case.id in SAMPLE else [pytest.mark.slow]) for case in CASES
]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("subject", CASES)
def test_laws(subject: Subject) -> None:
    """In one test for each layer: a thousand would take as long to be told apart as to be run."""
    check(laws_of(subject.layer), subject)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("subject", OF_CALLS_CASES)
def test_laws_of_calls(subject: Subject) -> None:
    check(OF_CALLS, subject)
