"""A text of some 4,000 characters, texts of three topics, names in columns; runs draw no pictures."""

from pathlib import Path

import pytest

from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import words
from training.tiny_texts import columns, tsv, without_pictures


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(words(800))
    return path


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """Texts with one of three labels."""
    path = tmp_path / "topics.tsv"
    path.write_text(tsv(TEXTS))
    return path


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Sentences in three columns; the last one has names in bio."""
    path = tmp_path / "names.txt"
    path.write_text(columns(TAGGED))
    return path


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
