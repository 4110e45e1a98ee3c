"""The programs beside graphs, run in this process."""

import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

NEIGHBORS = ("words", "written", "subwords", "both_ways", "frames", "labels")
"""What programs import that stands beside them."""
Program = Callable[..., str]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """What the program in a directory prints for a text."""

    def run(directory: Path, text: str = "", *arguments: str) -> str:
        path = directory / "predict.py"
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
        for name in NEIGHBORS:
            monkeypatch.delitem(sys.modules, name, raising=False)
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        for name in NEIGHBORS:
            monkeypatch.delitem(sys.modules, name, raising=False)
        return capsys.readouterr().out

    return run
