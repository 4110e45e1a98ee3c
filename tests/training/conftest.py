"""A text of some 4,000 characters, and runs without what takes longer than they: pictures, waiting for the disk."""

from pathlib import Path

import pytest

from training.tiny import words
from training.tiny_texts import hurry


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(words(800))
    return path


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", lambda *args, **kwargs: None)
    monkeypatch.setattr("ensue.training.weights.flush", lambda path: None)
    monkeypatch.setattr("ensue.training.checkpoint.flush", lambda path: None)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without what takes longer than a tiny one: pictures, flushing to the disk, measuring the processor."""
    hurry(monkeypatch)
