"""Examples that are mapped from the cache are those that were read, and the second start reads nothing."""

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from ensue.cache import cache_directory
from ensue.data import cached_columns, compact_texts, sources
from ensue.data.buckets import Buckets
from ensue.data.cached_columns import CachedColumns, cache_array, cache_columns
from ensue.data.examples import Document
from ensue.data.parallel import use_processes
from ensue.errors import DataError
from ensue.recipe import read_recipe
from ensue.tasks.classification.data import Documents
from ensue.tasks.classification.recipe import ClassificationData
from ensue.tasks.contract.data_set import Split
from ensue.tasks.sequence_to_sequence.job import stored_pairs
from ensue.training.run import begin_job
from training import tiny_pairs, tiny_texts

CPU = torch.device("cpu")


class Case(NamedTuple):
    """A recipe, the name of its file, and a file of any size. `reads` is what a start may not do twice."""

    recipe: str
    name: str
    content: str
    reads: str
    settings: dict[str, Any]


def documents() -> str:
    rows = [f"{found.labels[0]}\t{found.text}\n" for found in tiny_texts.documents(60)]
    return "label\ttext\n" + "".join([*rows, *rows[:7]])


def tagged() -> str:
    """Documents of five sentences."""
    found = tiny_texts.sentences(60)
    return "".join(f"-DOCSTART- X O\n\n{tiny_texts.columns(found[n : n + 5])}\n" for n in range(0, 60, 5))


SMALL = {"encoder.d_model": 8, "features.affixes": 0, "features.min_count": 1}
PAIRS = {f"{part}.d_model": 8 for part in ("encoder", "decoder")} | {"tokens.d_embedding": 8}
CASES = {
    "documents": Case(
        "classify-bag",
        "a.tsv",
        documents(),
        "ensue.tasks.classification.model.TextReader.read",
        {"head.ngram_buckets": 1000},
    ),
    "sentences": Case(
        "tag-lstm",
        "a.txt",
        tagged(),
        "ensue.tasks.labeling.data.SentenceData._read",
        SMALL | {"features.columns": ["2"], "head.kind": "viterbi", "data.context_words": 12},
    ),
    "columns": Case(
        "tag-columns",
        "a.conllu",
        tiny_texts.conllu(tiny_texts.sentences(60)),
        "ensue.text.label_columns.count_head_values",
        SMALL | {"features.characters": "none", "data.labels": ["upos", "feats", "lemma"]},
    ),
    "pairs": Case(
        "translate-lstm",
        "a.tsv",
        tiny_pairs.pairs(60),
        "ensue.tasks.sequence_to_sequence.texts.PairCoder.encode",
        PAIRS | {"tokenizer.kind": "words", "tokenizer.min_count": 5, "data.target_tokens": 9},
    ),
    "references": Case(
        "transduce-lstm",
        "a.dict",
        "".join(
            f"W{chr(65 + n)}{end}  W ER1 {vowel}\n" for n in range(26) for end, vowel in (("", "AA0"), ("(1)", "IY1"))
        ),
        "ensue.tasks.sequence_to_sequence.texts.PairCoder.train",
        PAIRS,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    found = CASES[request.param]
    (tmp_path / found.name).write_text(found.content, encoding="utf-8")
    settings = {"data.train": str(tmp_path / found.name), "train.batch_size": 8, "train.batch_tokens": 200}
    return found._replace(settings=settings | found.settings)


@pytest.fixture
def all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are kept, and long columns are in files."""
    monkeypatch.setattr(cached_columns, "MIN_CACHED_BYTES", 0)
    monkeypatch.setattr(compact_texts, "SPILL_BYTES", 100)
    monkeypatch.setattr(compact_texts, "MAX_SLICE", 50)


def job(case: Case) -> Any:
    return begin_job(read_recipe(case.recipe, case.settings), None)


def facts(found: Any) -> Any:
    """The numbers of a job: what it says, its files, its weights, and its batches."""
    torch.manual_seed(0)
    model = found.build_model()
    found.prepare(model)
    weights = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    batches = [list(tensors(found.task.batch(step, CPU))) for step in range(12)]
    return [found.data, found.notes, found.fingerprint, json.dumps(found.parts.files()), weights, batches,
            found.data_lines()]  # fmt: skip


def tensors(value: Any) -> Iterator[bytes]:
    """The bytes of all tensors of a batch."""
    if isinstance(value, torch.Tensor):
        yield value.numpy().tobytes()
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors(part)
    elif hasattr(value, "__dict__"):
        yield from tensors(tuple(vars(value).values()))


def kept_files() -> list[Path]:
    """Those of examples and their tags, without orders."""
    return [path for path in cache_directory().glob("*.rows") if b'"parts": {"order"' not in path.read_bytes()]


def kept_file() -> Path:
    """The larger one of examples; tags have one of their own."""
    return max(kept_files(), key=lambda path: path.stat().st_size)


@pytest.mark.sampled(2)
def test_they_are_those_that_were_read(case: Case, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    in_memory = facts(job(case))
    assert not list(cache_directory().glob("*.rows"))
    request.getfixturevalue("all_kept")
    assert facts(job(case)) == in_memory
    assert kept_file().stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(case.reads, refuse)
    assert facts(job(case)) == in_memory


@pytest.mark.usefixtures("all_kept")
def test_pairs_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of validation and test data, with their references; and a run that goes on has the tokens that it has."""
    rows = [
        ["source", "target 1", "target 2", "film"],
        *([f"s {n}", f"t {n}", "ü\u2028" * (n % 2), str(n)] for n in range(40)),
    ]
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    path = str(tmp_path / "a.tsv")
    recipe = read_recipe("translate-lstm", PAIRS | {"data.train": path, "data.test": path, "data.group": "film"})
    with monkeypatch.context() as patch:
        patch.setattr(cached_columns, "MIN_CACHED_BYTES", 1 << 20)
        found: Any = begin_job(recipe, None)
    read = {pair.sources: pair for pair in found.read(path)}
    for again in (found, begin_job(recipe, None), begin_job(recipe, None)):
        assert [pair._replace(group="") for pair in again.valid_pairs] == [read[p.sources] for p in again.valid_pairs]
        assert [pair.group for pair in again.valid_pairs[1:3]] == [p.sources[0][2:] for p in again.valid_pairs][1:3]
        assert list(stored_pairs(again.split.test)) == list(read.values())
        assert list(again.valid_pairs) == list(found.valid_pairs)


def refuse(*args: Any, **named: Any) -> Any:
    raise AssertionError("read again")


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("all_kept")
def test_a_damaged_file_is_made_anew(case: Case) -> None:
    """Also one that was cut off; and other options are other examples."""
    expected = facts(job(case))
    content, number = kept_file().read_bytes(), len(kept_files())
    for damaged in (
        content[:-1], b"", content[:40] + b"x" + content[41:], b"x" + content[1:],
        content[:-200] + bytes([content[-200] ^ 1]) + content[-199:], content.replace(b'["', b"[[", 1),
    ):  # fmt: skip
        kept_file().write_bytes(damaged)
        assert facts(job(case)) == expected
        assert kept_file().read_bytes() == content
    job(case._replace(settings=case.settings | {"data.valid_fraction": 0.3}))
    assert len(kept_files()) == 2 * number


def test_a_changed_byte_of_large_data_is_noticed_when_its_block_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = compact_texts.Numbers("i")
    numbers.add(np.arange(100_000))
    made = CachedColumns({"train": compact_texts.Columns({"numbers": numbers})}, {})
    cache_columns("key", lambda: made)
    content = kept_file().read_bytes()
    kept_file().write_bytes(content[:200_000] + b"x" + content[200_001:])
    with monkeypatch.context() as patch:
        patch.setattr(cached_columns, "MAX_CHECKED_BYTES", 0)
        train = cache_columns("key", refuse).splits["train"]
    assert train is not None
    found = train.columns["numbers"]
    assert found.read(slice(7, 12_000)).tolist() == [*range(7, 12_000)]
    assert found.read(np.array([[90_000], [3]])).tolist() == [[90_000], [3]]
    with pytest.raises(DataError, match="damaged: bytes 196"):
        found.read(np.array([50_000]))
    assert not list(cache_directory().glob("*.rows"))
    cache_columns("key", lambda: made)
    kept_file().write_bytes(content[:200_000] + b"x" + content[200_001:])
    cache_columns("key", lambda: made)
    assert kept_file().read_bytes() == content


def test_a_damaged_head_takes_no_memory() -> None:
    """It says that the JSON has four gigabytes."""
    made = CachedColumns({}, {"a": 1})
    cache_columns("key", lambda: made)
    content = kept_file().read_bytes()
    kept_file().write_bytes(content[:12] + b"\xff" * 4 + content[16:])
    tracemalloc.start()
    assert cached_columns._open_cached(kept_file(), "key") is None
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 20
    assert cache_columns("key", lambda: made).metadata == {"a": 1}
    assert kept_file().read_bytes() == content


@pytest.mark.parametrize("left", [0, 20, 130])
def test_an_array_that_was_cut_off_is_made_anew(left: int) -> None:
    made = np.arange(6.0)
    for _ in range(2):
        assert cache_array("key", ".ngrams", lambda: made).tolist() == made.tolist()
        (file,) = cache_directory().glob("*.ngrams")
        file.write_bytes(file.read_bytes()[:left])


@pytest.mark.usefixtures("all_kept")
def test_a_disk_that_is_full_is_told_in_one_line(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached_columns, "_write", full)
    with pytest.raises(DataError, match="cannot be written"):
        job(case)
    assert not list(cache_directory().glob("*.rows*"))


def test_a_large_file_is_digested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MIN_CACHED_BYTES", 4)
    monkeypatch.setattr(sources, "MIN_AGE_SECONDS", -1.0)
    path = tmp_path / "a.txt"
    path.write_text("some text")
    first = sources.digest_of([path])
    kept = next(cache_directory().glob("*.digest"))
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_read_digest", refuse)
        assert sources.digest_of([path]) == first
    kept.write_text("sha256 damaged")
    assert sources.digest_of([path]) == first
    path.write_text("some tex!")
    os.utime(path, (1, 1))
    assert sources.digest_of([path]) != first


@pytest.mark.slow
@pytest.mark.usefixtures("all_kept")
def test_several_processes_read_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.classification.data.CHUNK_DOCUMENTS", 9)
    monkeypatch.setattr("ensue.tasks.labeling.data.CHUNK_SENTENCES", 9)
    expected = facts(job(case))
    kept_file().unlink()
    with use_processes(2):
        assert facts(job(case)) == expected


def test_equal_rows_have_one_number() -> None:
    rows = [["a", "b"], [], ["b", "a"], ["a", "b"], ["a"], [], ["ab"], ["a", "b", "a"]]
    found = compact_texts.Texts()
    for row in rows:
        found.append(row)
    known: dict[tuple[str, ...], int] = {}
    expected = [known.setdefault(tuple(row), len(known)) for row in rows]
    assert compact_texts.number_rows(list(found.digests())).tolist() == expected
    assert found.indicators({"a": 0, "ab": 1}).tolist() == [["a" in row, "ab" in row] for row in rows]
    assert list(found) == [tuple(row) for row in rows] == [found[row] for row in range(len(rows))]
    assert np.array_equal(found.select(np.array([3, 1])).lengths, [2, 0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.usefixtures("all_kept")
def test_only_the_rows_of_a_batch_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million texts of 40 words: their ids alone are 160 MB, a batch and the order of all take a part of that."""
    monkeypatch.setattr(compact_texts, "SPILL_BYTES", 1 << 22)
    monkeypatch.setattr(compact_texts, "MAX_SLICE", 1 << 20)
    part, whole, generator = Documents.empty(1), Documents.empty(1), np.random.default_rng(0)
    for numbers in generator.integers(0, 5000, (10_000, 40)).tolist():
        words = [f"w{number}" for number in numbers]
        part.append([words], Document((), ("label",)), is_cut=False)
    for _ in range(100):
        whole.add(part)
    (tmp_path / "a.tsv").write_text("")
    table = ClassificationData(train=str(tmp_path / "a.tsv"))
    train = Split.cached(Documents, table, "", lambda: Split(whole, None, "none", None)).train
    before = resident_bytes()
    buckets = Buckets(train.texts[0].lengths, batch_size=64, batch_tokens=10_000, seed=0)
    for step in range(2000):
        rows = train.texts[0].ragged.padded(buckets.rows(step))
        assert rows.shape == (64, 40)
    assert resident_bytes() - before < 80e6
    assert train.texts[0][123_456] == part.texts[0][3_456]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
