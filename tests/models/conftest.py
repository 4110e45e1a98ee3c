"""The tests of models run layers with operations of torch; the tests of the engine cover compiled code."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_compiled(in_torch_operations: None) -> None: ...
