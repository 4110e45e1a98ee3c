"""Examples mapped from the cache equal those that were read, and a second start reads no data file."""

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
    """A recipe, its data file and settings; `reads` is a function that a second start must not call."""

    recipe: str
    name: str
    content: str
    reads: str
    settings: dict[str, Any]


def documents() -> str:
    rows = [f"{document.labels[0]}\t{document.text}\n" for document in tiny_texts.documents(60)]
    return "label\ttext\n" + "".join([*rows, *rows[:7]])


def tagged() -> str:
    """Return sentences in documents of five."""
    tagged_sentences = tiny_texts.sentences(60)
    return "".join(f"-DOCSTART- X O\n\n{tiny_texts.columns(tagged_sentences[n : n + 5])}\n" for n in range(0, 60, 5))


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
    chosen = CASES[request.param]
    (tmp_path / chosen.name).write_text(chosen.content, encoding="utf-8")
    settings = {"data.train": str(tmp_path / chosen.name), "train.batch_size": 8, "train.batch_tokens": 200}
    return chosen._replace(settings=settings | chosen.settings)


@pytest.fixture
def cache_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache examples of files of any size, and store columns in files."""
    monkeypatch.setattr(cached_columns, "MIN_CACHED_BYTES", 0)
    monkeypatch.setattr(compact_texts, "SPILL_BYTES", 100)
    monkeypatch.setattr(compact_texts, "MAX_SLICE", 50)


def job(case: Case) -> Any:
    return begin_job(read_recipe(case.recipe, case.settings), None)


def facts(job: Any) -> Any:
    """Return data, notes, fingerprint, files, weights and batches of a job."""
    torch.manual_seed(0)
    model = job.build_model()
    job.prepare(model)
    weights = [parameter.detach().numpy().tobytes() for parameter in model.parameters()]
    batches = [list(tensors(job.task.batch(step, CPU))) for step in range(12)]
    return [job.data, job.notes, job.fingerprint, json.dumps(job.parts.files()), weights, batches,
            job.data_lines()]  # fmt: skip


def tensors(value: Any) -> Iterator[bytes]:
    """Yield the bytes of all tensors of a batch."""
    if isinstance(value, torch.Tensor):
        yield value.numpy().tobytes()
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors(part)
    elif hasattr(value, "__dict__"):
        yield from tensors(tuple(vars(value).values()))


def cached_files() -> list[Path]:
    """Return the cached files except those of orders."""
    return [path for path in cache_directory().glob("*.rows") if b'"parts": {"order"' not in path.read_bytes()]


def cached_file() -> Path:
    """Return the largest cached file, which has the examples."""
    return max(cached_files(), key=lambda path: path.stat().st_size)


@pytest.mark.sampled(2)
def test_cached_examples_equal_those_in_memory(case: Case, monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    in_memory = facts(job(case))
    assert not list(cache_directory().glob("*.rows"))
    request.getfixturevalue("cache_all")
    assert facts(job(case)) == in_memory
    assert cached_file().stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(case.reads, refuse)
    assert facts(job(case)) == in_memory


@pytest.mark.usefixtures("cache_all")
def test_cached_validation_and_test_pairs_have_all_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """References and groups are cached, too."""
    rows = [
        ["source", "target 1", "target 2", "film"],
        *([f"s {n}", f"t {n}", "ü\u2028" * (n % 2), str(n)] for n in range(40)),
    ]
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    path = str(tmp_path / "a.tsv")
    recipe = read_recipe("translate-lstm", PAIRS | {"data.train": path, "data.test": path, "data.group": "film"})
    with monkeypatch.context() as patch:
        patch.setattr(cached_columns, "MIN_CACHED_BYTES", 1 << 20)
        uncached: Any = begin_job(recipe, None)
    by_source = {pair.sources: pair for pair in uncached.read(path)}
    for job in (uncached, begin_job(recipe, None), begin_job(recipe, None)):
        assert [pair._replace(group="") for pair in job.valid_pairs] == [by_source[p.sources] for p in job.valid_pairs]
        assert [pair.group for pair in job.valid_pairs[1:3]] == [p.sources[0][2:] for p in job.valid_pairs][1:3]
        assert list(stored_pairs(job.split.test)) == list(by_source.values())
        assert list(job.valid_pairs) == list(uncached.valid_pairs)


def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("read again")


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("cache_all")
def test_a_damaged_file_is_replaced(case: Case) -> None:
    """Truncated files are damaged, too. Other options have other files."""
    expected = facts(job(case))
    content, number = cached_file().read_bytes(), len(cached_files())
    for damaged in (
        content[:-1], b"", content[:40] + b"x" + content[41:], b"x" + content[1:],
        content[:-200] + bytes([content[-200] ^ 1]) + content[-199:], content.replace(b'["', b"[[", 1),
    ):  # fmt: skip
        cached_file().write_bytes(damaged)
        assert facts(job(case)) == expected
        assert cached_file().read_bytes() == content
    job(case._replace(settings=case.settings | {"data.valid_fraction": 0.3}))
    assert len(cached_files()) == 2 * number


def test_a_changed_byte_of_large_data_is_detected_when_its_block_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = compact_texts.Numbers("i")
    numbers.add(np.arange(100_000))
    columns = CachedColumns({"train": compact_texts.Columns({"numbers": numbers})}, {})
    cache_columns("key", lambda: columns)
    content = cached_file().read_bytes()
    cached_file().write_bytes(content[:200_000] + b"x" + content[200_001:])
    with monkeypatch.context() as patch:
        patch.setattr(cached_columns, "MAX_CHECKED_BYTES", 0)
        train = cache_columns("key", refuse).splits["train"]
    assert train is not None
    column = train.columns["numbers"]
    assert column.read(slice(7, 12_000)).tolist() == [*range(7, 12_000)]
    assert column.read(np.array([[90_000], [3]])).tolist() == [[90_000], [3]]
    with pytest.raises(DataError, match="damaged: bytes 196"):
        column.read(np.array([50_000]))
    assert not list(cache_directory().glob("*.rows"))
    cache_columns("key", lambda: columns)
    cached_file().write_bytes(content[:200_000] + b"x" + content[200_001:])
    cache_columns("key", lambda: columns)
    assert cached_file().read_bytes() == content


def test_a_damaged_header_takes_no_memory() -> None:
    """The header says that the JSON has four gigabytes."""
    columns = CachedColumns({}, {"a": 1})
    cache_columns("key", lambda: columns)
    content = cached_file().read_bytes()
    cached_file().write_bytes(content[:12] + b"\xff" * 4 + content[16:])
    tracemalloc.start()
    assert cached_columns._open_cached(cached_file(), "key") is None
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1 << 20
    assert cache_columns("key", lambda: columns).metadata == {"a": 1}
    assert cached_file().read_bytes() == content


@pytest.mark.parametrize("num_bytes", [0, 20, 130])
def test_a_truncated_array_is_replaced(num_bytes: int) -> None:
    array = np.arange(6.0)
    for _ in range(2):
        assert cache_array("key", ".ngrams", lambda: array).tolist() == array.tolist()
        (file,) = cache_directory().glob("*.ngrams")
        file.write_bytes(file.read_bytes()[:num_bytes])


@pytest.mark.usefixtures("cache_all")
def test_a_full_disk_is_an_error(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cached_columns, "_write", full)
    with pytest.raises(DataError, match="cannot be written"):
        job(case)
    assert not list(cache_directory().glob("*.rows*"))


def test_the_digest_of_a_large_file_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MIN_CACHED_BYTES", 4)
    monkeypatch.setattr(sources, "MIN_AGE_SECONDS", -1.0)
    path = tmp_path / "a.txt"
    path.write_text("some text")
    first = sources.digest_of([path])
    cached = next(cache_directory().glob("*.digest"))
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_read_digest", refuse)
        assert sources.digest_of([path]) == first
    cached.write_text("sha256 damaged")
    assert sources.digest_of([path]) == first
    path.write_text("some tex!")
    os.utime(path, (1, 1))
    assert sources.digest_of([path]) != first


@pytest.mark.slow
@pytest.mark.usefixtures("cache_all")
def test_several_processes_read_the_same_examples(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.classification.data.CHUNK_DOCUMENTS", 9)
    monkeypatch.setattr("ensue.tasks.labeling.data.CHUNK_SENTENCES", 9)
    expected = facts(job(case))
    cached_file().unlink()
    with use_processes(2):
        assert facts(job(case)) == expected


def test_equal_rows_have_the_same_number() -> None:
    rows = [["a", "b"], [], ["b", "a"], ["a", "b"], ["a"], [], ["ab"], ["a", "b", "a"]]
    texts = compact_texts.Texts()
    for row in rows:
        texts.append(row)
    known: dict[tuple[str, ...], int] = {}
    expected = [known.setdefault(tuple(row), len(known)) for row in rows]
    assert compact_texts.number_rows(list(texts.digests())).tolist() == expected
    assert texts.indicators({"a": 0, "ab": 1}).tolist() == [["a" in row, "ab" in row] for row in rows]
    assert list(texts) == [tuple(row) for row in rows] == [texts[row] for row in range(len(rows))]
    assert np.array_equal(texts.select(np.array([3, 1])).lengths, [2, 0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.usefixtures("cache_all")
def test_memory_does_not_hold_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of a million texts of 40 words are 160 MB; a batch and the order of texts take less."""
    monkeypatch.setattr(compact_texts, "SPILL_BYTES", 1 << 22)
    monkeypatch.setattr(compact_texts, "MAX_SLICE", 1 << 20)
    part, all_texts, generator = Documents.empty(1), Documents.empty(1), np.random.default_rng(0)
    for numbers in generator.integers(0, 5000, (10_000, 40)).tolist():
        words = [f"w{number}" for number in numbers]
        part.append([words], Document((), ("label",)), is_cut=False)
    for _ in range(100):
        all_texts.add(part)
    (tmp_path / "a.tsv").write_text("")
    table = ClassificationData(train=str(tmp_path / "a.tsv"))
    train = Split.cached(Documents, table, "", lambda: Split(all_texts, None, "none", None)).train
    before = resident_bytes()
    buckets = Buckets(train.texts[0].lengths, batch_size=64, batch_tokens=10_000, seed=0)
    for step in range(2000):
        rows = train.texts[0].ragged.padded(buckets.rows(step))
        assert rows.shape == (64, 40)
    assert resident_bytes() - before < 80e6
    assert train.texts[0][123_456] == part.texts[0][3_456]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
