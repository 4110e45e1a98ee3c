"""The tests of a process share the layers of the table, so each test leaves them in evaluation."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def in_evaluation(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    subject = getattr(getattr(request.node, "callspec", None), "params", {}).get("subject")
    assert subject is None or not any(module.training for module in subject.layer.modules())
