"""The published sets of pairs, unchanged: counts equal those of their authors."""

import gzip
from pathlib import Path

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import PairSource, with_references
from ensue.errors import DataError

pytestmark = pytest.mark.slow

MULTI30K = ("multi30k/train.en.gz", "multi30k/train.de.gz")
ENJA = ("small_parallel_enja/{}.en{}", "small_parallel_enja/{}.ja{}")


def location(shared_data: Path, *names: str) -> str:
    return ",".join(str(shared_data / name) for name in names)


@pytest.mark.parametrize(
    ("names", "format", "count", "sources", "references"),
    [
        (MULTI30K, "aligned", 29_000, 1, 1),
        (("multi30k/test_2016_flickr.de.gz", "multi30k/test_2016_flickr.fr.gz"), "aligned", 1_000, 1, 1),
        ([name.format("train", ".xz") for name in ENJA], "aligned", 50_000, 1, 1),
        ([name.format("test", "") for name in ENJA], "aligned", 500, 1, 1),
        (["cmudict/cmudict.xz"], "cmudict", 133_737, 1, 1),
        (["scan/tasks_train_simple.txt.xz"], "scan", 16_728, 1, 1),
        (["scan/tasks_test_length.txt.xz"], "scan", 3_920, 1, 1),
        (["scan/tasks_test_addprim_jump.txt.xz"], "scan", 7_706, 1, 1),
        (["sigmorphon2017/turkish-train-high.xz"], "sigmorphon", 10_000, 2, 1),
        (["sigmorphon2017/finnish-test.xz"], "sigmorphon", 1_000, 2, 1),
        (["samsum/train.csv.xz"], "csv", 14_731, 1, 1),
        (["samsum/test.csv.xz"], "csv", 819, 1, 1),
        (["dialogsum/dialogsum.train.jsonl.xz"], "json", 12_460, 1, 1),
        (["dialogsum/dialogsum.test.jsonl.xz"], "json", 500, 1, 3),
    ],
)
def test_published_counts_of_pairs_are_read(
    shared_data: Path, names: list[str], format: str, count: int, sources: int, references: int
) -> None:
    path = location(shared_data, *names)
    assert detect(path)[:2] == ("pairs", format)
    pairs = list(PairSource(path))
    assert (len(pairs), {(len(pair.sources), len(pair.targets)) for pair in pairs}) == (count, {(sources, references)})


def test_words_are_read_with_their_pronunciations(shared_data: Path) -> None:
    assert len(with_references(PairSource(shared_data / "cmudict/cmudict.xz"))) == 123_455


def test_the_place_of_a_lost_line_is_reported(shared_data: Path, tmp_path: Path) -> None:
    source, target = (gzip.decompress((shared_data / name).read_bytes()).splitlines(keepends=True) for name in MULTI30K)
    (tmp_path / "a.en").write_bytes(b"".join(source))
    for lost in (12_345, 20_000):
        (tmp_path / "a.de").write_bytes(b"".join(target[: lost - 1] + target[lost:]))
        with pytest.raises(DataError, match=f"a line is missing at about line {lost:,}"):
            list(PairSource(f"{tmp_path / 'a.en'},{tmp_path / 'a.de'}"))
