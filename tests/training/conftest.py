"""A text of some 4,000 characters; runs draw no pictures."""

from pathlib import Path

import pytest

from training.tiny import words
from training.tiny_texts import without_pictures


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(words(800))
    return path


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
