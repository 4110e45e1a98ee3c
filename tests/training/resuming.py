"""Reporters that stop a run at a step, and the assertion that a resumed run ends the same."""

import signal
from pathlib import Path
from typing import Any

import pytest

from ensue.recipe import Recipe
from ensue.runs.reporter import Reporter, StepReport
from training.tiny import reproducible_state, run_tiny


class Killed(BaseException):
    """Simulates the death of the process, since no handler catches it."""


class At(Reporter):
    """Calls an action after a certain step."""

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
    """Assert that a run of nine or more steps, interrupted, killed and resumed twice, equals an undisturbed one."""
    expected = run_tiny(recipe, folder / "full")
    assert run_tiny(recipe, folder / "parts", reporter=At(2, interrupt)).reason == "interrupted"
    with pytest.raises(Killed):
        run_tiny(None, folder / "parts", reporter=At(8, die), resume=True)
    parts = run_tiny(None, folder / "parts", resume=True)
    assert reproducible_state(folder / "parts") == reproducible_state(folder / "full")
    assert parts.valid == expected.valid
    for name in ("tokenizer.json", "labels.json", "frames.json", "image.json"):
        if (folder / "full" / name).exists():  # a language model has no labels
            assert (folder / "parts" / name).read_bytes() == (folder / "full" / name).read_bytes()
