"""The published sizes of real data sets, and a model of one data set; skipped without ../shared/data."""

from pathlib import Path

import pytest

import ensue
from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.corpus.pairs import pair_files, read_pairs
from ensue.data.sources import TextSource
from ensue.tasks.texts.scoring import score_text

pytestmark = pytest.mark.slow


def test_a_model_of_tiny_shakespeare_learns_in_seconds(shared_data: Path, tmp_path: Path) -> None:
    """13 seconds of one thread suffice; 20 leave time for other processes on the core."""
    text = shared_data / "tinyshakespeare" / "input.txt.xz"
    lm = ensue.train("char-lstm", train=text, out=tmp_path / "run", threads=1, settings={"train.seconds": 20})
    source = TextSource(text)
    assert source.num_characters == 1_115_394
    tokens = tokenize(source, lm.tokenizer, start=1_003_854)
    scores = score_text(lm.model, tokens, start_id=lm.tokenizer.start_id)
    assert (scores.tokens, scores.characters) == (111_540, 111_540)
    assert scores.nats_per_token <= 1.88
    sequential = score_text(lm.model, tokens, start_id=lm.tokenizer.start_id, parts=1)
    assert sequential.nats_per_token == pytest.approx(scores.nats_per_token, rel=1e-4)
    assert len("".join(lm.generate("ROMEO:", max_tokens=100, seed=0))) == 100


@pytest.mark.parametrize(
    ("name", "vocabulary_size", "counts"),
    [
        ("ptb/ptb.{}.txt.xz", 10_000, {"train": 929_589, "valid": 73_760, "test": 82_430}),
        ("wikitext-2/{}.txt.xz", 33_278, {"train": 2_088_628, "valid": 217_646, "test": 245_569}),
    ],
)
def test_published_words_are_counted(
    name: str, vocabulary_size: int, counts: dict[str, int], shared_data: Path
) -> None:
    source = TextSource(shared_data / name.format("train"))
    tokenizer = load_or_train_tokenizer(source, stop=None, kind="words")
    assert tokenizer.vocabulary_size == vocabulary_size
    for part, count in counts.items():
        assert len(tokenize(TextSource(shared_data / name.format(part)), tokenizer)) == count


def test_a_folder_of_books_is_read(shared_data: Path) -> None:
    source = TextSource(shared_data / "gutenberg", encoding="latin-1")  # two of the books are not UTF-8
    assert len(source.paths) == 18  # 17 books and their README
    assert sum(len(chunk.split()) for chunk in source.chunks()) > 1_300_000


def test_the_bytes_of_a_dump_are_counted(shared_data: Path) -> None:
    source = TextSource(shared_data / "enwiki_sample")
    tokenizer = load_or_train_tokenizer(source, stop=None, kind="bytes")
    assert len(tokenize(source, tokenizer)) == 6_089_746


def test_minimal_pairs_of_colorless_green_are_read(shared_data: Path) -> None:
    (path,) = pair_files(shared_data / "colorless_green" / "English")
    pairs = list(read_pairs(path))
    assert len(pairs) == 410
    assert all(pair.good != pair.bad for pair in pairs)
