"""Outputs of `--shard i/N`, one after another, equal the full output byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.tasks.contract.chunks import Shard
from training.tiny_pairs import pairs
from training.tiny_texts import columns, documents, quoted_csv, sentences, tsv

Refused = Callable[..., str]


def assert_shards_join(ensue: Ensue, *command: object) -> None:
    full_output = ensue(*command).succeeded()
    for count in (3, 9):
        outputs = [ensue(*command, "--shard", f"{number}/{count}").out for number in range(1, count + 1)]
        assert "".join(outputs) == full_output.out
        assert sum(map(bool, outputs)) > 1


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.classification.pipeline.CHUNK_TEXTS", 7)
    monkeypatch.setattr("ensue.tasks.labeling.pipeline.CHUNK_WORDS", 20)
    monkeypatch.setattr("ensue.console.vectors.BATCH_TEXTS", 5)
    monkeypatch.setattr("ensue.tasks.sequence_to_sequence.task.CHUNK_SOURCES", 5)


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    ("run", "name", "content"),
    [
        ("topics", "some.tsv", tsv(documents(40, seed=4))),
        ("topics", "some.csv", quoted_csv(documents(40, seed=4))),
        ("topics", "unended.tsv", tsv(documents(40, seed=4)).rstrip("\n")),
        ("names", "some.txt", columns(sentences(40, seed=4)) + "\n\n\n"),
        ("names", "plain.txt", "".join(" ".join(s.words) + "\n" for s in sentences(40, seed=4))),
        ("upos", "some.txt", columns(sentences(40, seed=4))),
    ],
)  # fmt: skip
def test_shards_of_labeled_files_join(
    ensue: Ensue, runs: Path, tmp_path: Path, run: str, name: str, content: str, as_json: list[str]
) -> None:
    (tmp_path / name).write_text(content, newline="")
    assert_shards_join(ensue, "predict", runs / run, tmp_path / name, *as_json)


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("options", [["--n-best", 2], ["--json"]])
def test_shards_of_sources_join(ensue: Ensue, translators: Path, tmp_path: Path, options: list[object]) -> None:
    (tmp_path / "pairs.tsv").write_text(pairs(23, seed=3))
    assert_shards_join(ensue, "predict", translators / "one", tmp_path / "pairs.tsv", *options)


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
def test_shards_of_vectors_join(ensue: Ensue, vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("salt oven\npiano\n\nnowhere\n" * 6)
    assert_shards_join(ensue, "embed", vectors, tmp_path / "texts.txt")
    assert_shards_join(ensue, "embed", vectors, tmp_path / "texts.txt", "--json")


def test_invalid_shards_are_refused(refused: Refused, runs: Path, trained: Path) -> None:
    data = runs / "topics.tsv"
    for shard in ("0/3", "4/3", "3", "a/b", "-1/3", "1/0", "1/99999999"):
        expected = f'--shard takes i/N with i from 1 to N, such as 3/8; found "{shard}"'
        assert refused("predict", runs / "topics", data, "--shard", shard) == expected
    assert refused("predict", runs / "topics", "--shard", "1/2", stdin=b"a\n") == (
        "--shard needs a file, whose chunks are counted first; found stdin"
    )


def test_windows_are_divided_in_order() -> None:
    for total in range(12):
        for count in (1, 2, 5, 13):
            shards = [
                list(Shard(number, count).items(lambda n=total: iter(range(n)))) for number in range(1, count + 1)
            ]  # type: ignore[misc]
            assert [window for windows in shards for window in windows] == list(range(total))
