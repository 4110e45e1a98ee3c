"""Models are made of layers that the tests of the engine compile and compare: here they run in torch's operations."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_compiled(in_torch_operations: None) -> None: ...
