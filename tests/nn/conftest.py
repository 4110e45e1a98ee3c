"""Fixtures that several files share."""

import pytest

from ensue.nn.heads import chain


@pytest.fixture(params=["exponentials", "logarithms"])
def sum_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two methods to compute sums over chains, as the only one."""

    def unwanted(*_: object) -> None:
        raise AssertionError("the exponentials should suffice")

    if request.param == "exponentials":
        monkeypatch.setattr(chain, "_log_partition_in_logs", unwanted)
    else:
        monkeypatch.setattr(chain, "_sums", lambda *_: None)
    return str(request.param)
