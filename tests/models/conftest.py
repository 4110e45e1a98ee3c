"""Models are made of layers that tests/nn has compiled and compared: here they run in torch's operations."""

from collections.abc import Iterator

import pytest

from ensue.engine import executing


@pytest.fixture(autouse=True)
def in_torch_operations() -> Iterator[None]:
    with executing("plain"):
        yield
