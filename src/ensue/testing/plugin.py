"""A pytest plugin with the fixture `laws`, which checks the laws of a layer in a test:

def test_laws(laws):
    laws(lambda: MinimalGatedUnit(4, 7))
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imports torch, which most test runs do not need
    from ensue.nn import SequenceLayer

pytest.register_assert_rewrite("ensue.testing.laws")


@pytest.fixture
def laws() -> "Callable[[Callable[[], SequenceLayer]], None]":
    """Return the function that checks the laws of a layer, `ensue.testing.laws.check_layer`."""
    from ensue.testing.laws import check_layer  # noqa: PLC0415

    return check_layer
