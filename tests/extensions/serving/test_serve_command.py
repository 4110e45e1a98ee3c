"""The options for keys and addresses of `ensue serve`."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command_fixtures import Ensue


@pytest.fixture
def server_keys(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys with which servers have been started."""
    keys: list[Any] = []
    monkeypatch.setattr("ensue.runs.schema.existing_run", lambda run: run)
    monkeypatch.setattr(
        "ensue.extensions.serving.processes.open_listener", lambda *_: SimpleNamespace(getsockname=lambda: ("", 80))
    )
    monkeypatch.setattr("ensue.extensions.serving.server.serve", lambda *_, key, **__: keys.append(key))
    monkeypatch.delenv("ENSUE_KEY", raising=False)
    return keys


def test_an_empty_key_is_refused(
    refused: Callable[..., str], server_keys: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("", " "):
        assert "--key" in refused("serve", tmp_path, "--port", 0, "--key", key)
    for key in ("", " "):
        monkeypatch.setenv("ENSUE_KEY", key)
        assert "ENSUE_KEY" in refused("serve", tmp_path, "--port", 0)
    assert server_keys == []


@pytest.mark.filterwarnings("default")
def test_an_open_address_without_a_key_gives_a_warning(ensue: Ensue, server_keys: list[Any], tmp_path: Path) -> None:
    message = ensue("serve", tmp_path, "--port", 0, "--host", "0.0.0.0")
    assert message.err == "ensue: 0.0.0.0 is reachable from other machines without a key; --key sets one\n"
    assert ensue("serve", tmp_path, "--port", 0, "--host", "0.0.0.0", "--key", "secret").err == ""
    assert ensue("serve", tmp_path, "--port", 0).err == ""
    assert server_keys == [None, "secret", None]
