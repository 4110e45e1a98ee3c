"""A fixture for a process that has compiled nothing yet."""

from collections.abc import Iterator
from functools import cache

import pytest

from engine.cells import Library
from ensue.engine import c_library, c_passes, products


@pytest.fixture
def fresh_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Return `library` with an empty cache, as in a new process."""
    fresh = cache(c_library.library.__wrapped__)
    for module in (c_library, c_passes, products):
        monkeypatch.setattr(module, "library", fresh)
    monkeypatch.setattr(c_passes, "products", cache(products.products.__wrapped__))
    monkeypatch.delenv("ENSUE_CELLS", raising=False)
    return fresh
