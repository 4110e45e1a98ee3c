"""Here models are looked into, whatever they run in: in torch's operations nothing has to be compiled."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_compiled(in_torch_operations: None) -> None: ...
