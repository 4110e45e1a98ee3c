"""Models are inspected in torch operations, so that nothing is compiled."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_compiled(in_torch_operations: None) -> None: ...
