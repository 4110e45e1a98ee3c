"""The programs beside graphs, run in this process."""

import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CARRIED = "ensue_modules"
NEIGHBORS = ("words", "subwords", "both_ways", "frames")
"""What programs import that stands beside them."""
Program = Callable[..., str]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the next program import its own neighbors and modules."""
    for name in [*sys.modules]:
        if name in NEIGHBORS or name.partition(".")[0] == CARRIED:
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """What the program in a directory prints for a text."""

    def run(directory: Path, text: str = "", *arguments: str) -> str:
        path = directory / "predict.py"
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="cp1252"))
        monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
        forget(monkeypatch)
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        forget(monkeypatch)
        return capsys.readouterr().out

    return run
