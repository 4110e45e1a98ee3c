"""Fixtures: a text of about 4,000 characters, texts of three topics, sentences with names, and a masked model."""

from pathlib import Path

import pytest

from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import run_tiny, words
from training.tiny_masked import masked_recipe
from training.tiny_texts import columns, tsv
from written_files import write_file


@pytest.fixture
def text(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return write_file(tmp_path / "text.txt", words(getattr(request.module, "NUM_WORDS", 800)))


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """Texts with one of three labels."""
    return write_file(tmp_path / "topics.tsv", tsv(TEXTS))


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Sentences in three columns; the last column has names in bio."""
    return write_file(tmp_path / "names.txt", columns(TAGGED))


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small masked language model over the words of `TAGGED` and `TEXTS`, whose layers other runs read."""
    folder = tmp_path_factory.mktemp("contextual")
    sentences = [" ".join(sentence.words) for sentence in TAGGED] + [document.text for document in TEXTS]
    (folder / "text.txt").write_text("\n".join(sentences) + "\n")
    recipe = masked_recipe(folder / "text.txt", train={"steps": 2, "validations": 1}, encoder={"d_model": 8})
    run_tiny(recipe, folder / "masked")
    return folder / "masked"
