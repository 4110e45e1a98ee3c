"""Every layer × every law."""

import pytest

from ensue.nn import SequenceLayer

from .laws import EVERY_LAYER, REMEMBERING, STEPPING, Law
from .table import SUBJECTS, Subject

CASES = [
    pytest.param(subject, id=subject.name.replace(" ", "_"), marks=[pytest.mark.slow] if subject.is_slow else [])
    for subject in SUBJECTS
]


def laws_of(layer: SequenceLayer) -> list[Law]:
    return [
        *EVERY_LAYER,
        *(STEPPING if layer.is_causal else []),
        *(REMEMBERING if layer.d_memory is not None else []),
    ]


@pytest.mark.parametrize("subject", CASES)
def test_laws(subject: Subject) -> None:
    """In one test for each layer: a thousand would take as long to be told apart as to be run."""
    broken: list[AssertionError] = []
    for law in laws_of(subject.layer):
        try:
            law(subject)
        except AssertionError as error:
            broken.append(error)
    if broken:
        raise ExceptionGroup(f"{len(broken)} laws", broken)
