"""The examples of clients in the documentation, run against a real server."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from extensions.serving.running import Running, language_run
from pages import REPOSITORY, blocks

PAGE = REPOSITORY / "docs" / "serving.md"


@pytest.mark.slow
def test_the_examples_of_clients_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Running(language_run(tmp_path / "run")) as server:
        namespace: dict[str, object] = {"__name__": "page"}
        for block in blocks(PAGE, "py"):
            if "client" in block.text and find_spec("openai") is None:
                continue
            code = block.text.replace("http://127.0.0.1:8000", server.url)
            exec(compile(code, str(PAGE), "exec"), namespace)
    assert capsys.readouterr().out
