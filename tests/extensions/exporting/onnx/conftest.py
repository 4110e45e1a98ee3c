"""Run the exported programs in this process."""

import io
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CARRIED = "ensue_modules"
NEIGHBORS = ("words", "subwords", "both_ways", "frames")
"""Modules that programs import from their own folder."""
Program = Callable[..., str]


def forget_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove modules of earlier programs, so that the next program imports its own."""
    for name in [*sys.modules]:
        if name in NEIGHBORS or name.partition(".")[0] == CARRIED:
            monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """A function that runs the program in a directory with a text and returns its output."""

    def run(directory: Path, text: str = "", *arguments: str) -> str:
        path = directory / "predict.py"
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="cp1252"))
        monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
        forget_modules(monkeypatch)
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        forget_modules(monkeypatch)
        return capsys.readouterr().out

    return run
