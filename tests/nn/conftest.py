"""Fixtures of more than one file here."""

import pytest

from ensue.nn.heads import chain


@pytest.fixture(params=["exponentials", "logarithms"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to the sums over a chain, made the only one."""

    def unwanted(*_: object) -> None:
        raise AssertionError("the exponentials should have been enough")

    if request.param == "exponentials":
        monkeypatch.setattr(chain, "_log_partition_in_logs", unwanted)
    else:
        monkeypatch.setattr(chain, "_sums", lambda *_: None)
    return str(request.param)
