"""A text of some 4,000 characters, texts of three topics, names in columns."""

from pathlib import Path

import pytest

from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import run_tiny, words
from training.tiny_masked import masked_recipe
from training.tiny_texts import columns, tsv


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


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small masked language model over the words of `TAGGED` and `TEXTS`, whose layers other runs read."""
    folder = tmp_path_factory.mktemp("contextual")
    sentences = [" ".join(sentence.words) for sentence in TAGGED] + [document.text for document in TEXTS]
    (folder / "text.txt").write_text("\n".join(sentences) + "\n")
    recipe = masked_recipe(folder / "text.txt", train={"steps": 2, "validations": 1}, encoder={"d_model": 8})
    run_tiny(recipe, folder / "masked")
    return folder / "masked"
