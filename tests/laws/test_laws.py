"""Every layer × every law."""

import pytest

from .laws import EVERY_LAYER, REMEMBERING, STEPPING, Law
from .table import SUBJECTS, Subject

CASES = [
    pytest.param(
        law,
        subject,
        id=f"{law.__name__}-{subject.name.replace(' ', '_')}",
        marks=[pytest.mark.slow] if subject.is_slow else [],
    )
    for subject in SUBJECTS
    for layer in [subject.make()]
    for law in [
        *EVERY_LAYER,
        *(STEPPING if layer.is_causal else []),
        *(REMEMBERING if layer.d_memory is not None else []),
    ]
]


@pytest.mark.parametrize(("law", "subject"), CASES)
def test_law(law: Law, subject: Subject) -> None:
    law(subject)
