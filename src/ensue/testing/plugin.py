"""The plugin of pytest: a fixture `laws`, which checks the laws of a layer.

def test_laws(laws):
    laws(lambda: MinimalGatedUnit(4, 7))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # it needs torch, which most tests of most packages do not
    from ensue.nn import SequenceLayer

pytest.register_assert_rewrite("ensue.testing.laws")


@pytest.fixture
def laws() -> Callable[[Callable[[], SequenceLayer]], None]:
    """The function that checks the laws of a layer: `ensue.testing.laws.check_layer`."""
    from ensue.testing.laws import check_layer  # noqa: PLC0415

    return check_layer
