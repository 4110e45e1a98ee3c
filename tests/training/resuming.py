"""Stopping a run at a certain step, and what has to be the same in the end."""

import signal
from pathlib import Path
from typing import Any

import pytest

from ensue.recipe import Recipe
from ensue.runs.reporter import Reporter, StepReport
from training.tiny import kept, run_tiny


class Killed(BaseException):
    """Stands in for the process's end: nothing after it is done."""


class At(Reporter):
    """Does something after a certain step."""

    def __init__(self, step: int, action: Any) -> None:
        self.at, self.action = step, action

    def stepped(self, report: StepReport) -> None:
        if report.step == self.at:
            self.action()


def die() -> None:
    raise Killed


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def assert_resumes(recipe: Recipe, folder: Path) -> None:
    """Interrupted, killed and taken up twice, a run of at least nine steps ends in the bits of an undisturbed one."""
    whole = run_tiny(recipe, folder / "whole")
    assert run_tiny(recipe, folder / "parts", reporter=At(2, interrupt)).reason == "interrupted"
    with pytest.raises(Killed):
        run_tiny(None, folder / "parts", reporter=At(8, die), resume=True)
    parts = run_tiny(None, folder / "parts", resume=True)
    assert kept(folder / "parts") == kept(folder / "whole")
    assert parts.valid == whole.valid
    for name in ("tokenizer.json", "labels.json", "frames.json", "image.json"):
        if (folder / "whole" / name).exists():  # a language model has no labels
            assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes()
