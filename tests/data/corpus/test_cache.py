"""Files of ids in the cache: hits, damage, a full disk, constant memory."""

import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ensue.cache import cache_directory, temporary_directory
from ensue.data import mapped_file
from ensue.data.corpus import cache
from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.mapped_file import _HEADER, _MAGIC, TokenFile, check_tokens, header_of, write_tokens
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.notices import Notice
from ensue.text.tokenizers import Tokenizer, train_tokenizer

TEXT = "the cat sat\non the mat\n" * 50


@pytest.fixture(autouse=True)
def empty_cache(own_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without compiled cells."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> TextSource:
    path = tmp_path / "text" / "a.txt"
    path.parent.mkdir()
    path.write_text(TEXT)
    return TextSource(path)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer("characters", [TEXT.replace("o", "")])


def ids_of(tokens: TokenFile) -> list[int]:
    return tokens.read(0, len(tokens)).tolist()


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("the entry was computed again")


@pytest.mark.parametrize(("size", "item"), [(2, 1), (256, 1), (257, 2), (65536, 2), (65537, 4)])
def test_ids_take_the_fewest_bytes(size: int, item: int, tmp_path: Path) -> None:
    ids = np.array([0, size - 1, 1, 0], np.uint32)
    path = tmp_path / "x.ids"
    write_tokens(path, [(ids[:1], 3), (ids[1:], 4)], vocabulary_size=size, unknown_id=0)
    tokens = TokenFile.open(path)
    assert header_of(path).file_bytes == _HEADER.size + 4 * item
    assert path.stat().st_size == header_of(path).file_bytes + 4  # the checksum of a page
    assert (len(tokens), tokens.unknown, tokens.characters) == (4, 2, 7)
    assert ids_of(tokens) == ids.tolist()
    some_ids = tokens.read(1, 3)
    assert some_ids.dtype == np.int64
    some_ids[:] = 0  # a copy
    assert tokens.read(1, 3).tolist() == [size - 1, 1]
    rows = tokens.read_rows(np.array([2, 0]), 2)
    assert rows.dtype == np.int64
    assert rows.tolist() == [[1, 0], [0, size - 1]]
    with pytest.raises(AssertionError, match="beyond the ids"):
        tokens.read_rows(np.array([0, 3]), 2)


def test_a_file_without_ids_can_be_written(tmp_path: Path) -> None:
    write_tokens(tmp_path / "x.ids", [], vocabulary_size=5, unknown_id=None)
    assert ids_of(TokenFile.open(tmp_path / "x.ids")) == []


def test_ids_in_memory_are_read_like_those_of_a_file() -> None:
    tokens = TokenFile(np.array([3, 1, 2], np.uint32), unknown=1, characters=9)
    assert (ids_of(tokens), tokens.unknown, tokens.characters) == ([3, 1, 2], 1, 9)


def test_the_environment_sets_the_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.delenv("ENSUE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "ensue"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "ensue"


def test_ids_equal_those_of_the_text_and_are_computed_once(
    source: TextSource, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokenize(source, tokenizer, start=5, stop=105)
    assert ids_of(tokens) == tokenizer.encode(TEXT[5:105]).tolist()
    assert (tokens.unknown, tokens.characters) == (TEXT[5:105].count("o"), 100)
    monkeypatch.setattr(tokenizer, "encode", refuse)
    assert ids_of(tokenize(TextSource(source.paths[0]), tokenizer, start=5, stop=105)) == ids_of(tokens)


def test_another_text_range_encoding_or_tokenizer_is_another_entry(source: TextSource, tokenizer: Tokenizer) -> None:
    other_text = source.paths[0].with_name("b.txt")
    other_text.write_text(TEXT + "!")
    tokenize(source, tokenizer)
    tokenize(source, tokenizer, stop=10)
    tokenize(TextSource(other_text), tokenizer)
    tokenize(TextSource(source.paths[0], encoding="latin-1"), tokenizer)
    tokenize(source, train_tokenizer("bytes", []))
    assert len(list(cache_directory().iterdir())) == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5], lambda data: data + b"\0", lambda data: data[:10], lambda data: b"",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], lambda data: b"x" * len(data),
        lambda data: data[:8] + b"\x03" + data[9:],
    ],
    ids=["cut", "longer", "cut in the header", "empty", "a bit flipped", "overwritten", "wrong item size"],
)  # fmt: skip
def test_a_damaged_entry_is_written_again(damage, source: TextSource, tokenizer: Tokenizer) -> None:
    expected = ids_of(tokenize(source, tokenizer))
    (entry,) = cache_directory().iterdir()
    content = entry.read_bytes()
    entry.write_bytes(damage(content))
    assert ids_of(tokenize(source, tokenizer)) == expected
    assert entry.read_bytes() == content
    check_tokens(entry)


@contextmanager
def small_files_only() -> Iterator[None]:
    """Let the system refuse more than 100 bytes in a file, also in one that pytest writes to: only for a short time."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_the_system_refuses_leaves_no_file(source: TextSource, tokenizer: Tokenizer) -> None:
    before = list(temporary_directory().glob("*.*"))  # of other tests
    with small_files_only():
        with pytest.raises(DataError, match="cannot be written, and neither can a temporary folder"):
            tokenize(source, tokenizer)
        with pytest.raises(DataError, match="cannot be written"):
            load_or_train_tokenizer(source, stop=None, kind="words")
    assert list(cache_directory().iterdir()) == []
    assert list(temporary_directory().glob("*.*")) == before


def test_a_full_disk_gives_one_line(source: TextSource, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(path: Path, *_: object, **__: object) -> None:
        path.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "write_tokens", fill)
    with pytest.raises(DataError) as caught:
        tokenize(source, tokenizer)
    reason = "cannot be written, and neither can a temporary folder (No space left on device)"
    assert str(caught.value) == f"{cache_directory()}: {reason}"
    assert list(cache_directory().iterdir()) == []


def test_errors_and_ctrl_c_leave_no_file(
    source: TextSource, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer, "encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokenize(source, tokenizer)
    source.paths[0].write_bytes(TEXT.encode() * 1000 + b"\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        tokenize(TextSource(source.paths[0]), train_tokenizer("bytes", []))
    assert list(cache_directory().iterdir()) == []


def test_a_cache_that_cannot_be_written_is_reported_once_and_replaced(
    source: TextSource, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(Notice, match=r"file/cache: the cache cannot be written \(Not a directory\): nothing") as output:
        tokens, trained = tokenize(source, tokenizer), load_or_train_tokenizer(source, stop=None, kind="words")
    assert (ids_of(tokens), trained.kind) == (tokenizer.encode(TEXT).tolist(), "words")
    assert len(output) == 1
    for path in temporary_directory().glob("*.*"):
        path.unlink()


def test_without_a_home_directory_ids_are_computed_with_a_notice(
    source: TextSource, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ENSUE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.warns(Notice, match="there is no home directory") as output:
        assert ids_of(tokenize(source, tokenizer)) == tokenizer.encode(TEXT).tolist()
    assert len(output) == 1


def test_partial_files_of_a_killed_process_are_removed_after_a_day(source: TextSource, tokenizer: Tokenizer) -> None:
    cache_directory().mkdir(exist_ok=True)
    old, new, other = (
        cache_directory() / name
        for name in (f"{'a' * 32}.ids.{'0' * 8}.partial", f"{'b' * 32}.json.{'0' * 8}.partial", "other.partial")
    )
    for path in (old, new, other):
        path.write_text("")
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    tokenize(source, tokenizer)
    assert [path.exists() for path in (old, new, other)] == [False, True, True]


def test_only_the_user_can_read_the_cache(
    source: TextSource, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "new"))
    tokenize(source, tokenizer)
    (entry,) = cache_directory().iterdir()
    assert [path.stat().st_mode & 0o777 for path in (cache_directory(), entry)] == [0o700, 0o600]


def test_reading_updates_the_file_time(
    source: TextSource, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokenize(source, tokenizer)
    (entry,) = cache_directory().iterdir()
    os.utime(entry, (0, 0))
    monkeypatch.setattr(mapped_file, "RELEASE_BYTES", 1 << 20)
    for _ in range(20):
        tokens.read(0, 100)
    assert time.time() - entry.stat().st_mtime < 100


def test_a_tokenizer_is_trained_once(source: TextSource, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_or_train_tokenizer(source, stop=11, kind="words", min_count=1)
    assert first.to_json()["symbols"] == ["<unk>", "<eos>", "cat", "sat", "the"]
    assert load_or_train_tokenizer(source, stop=11, kind="words", min_count=2).vocabulary_size == 2
    (damaged, *_) = cache_directory().iterdir()
    damaged.write_text("{")
    assert load_or_train_tokenizer(source, stop=11, kind="words", min_count=1).to_json() == first.to_json()
    assert load_or_train_tokenizer(source, stop=11, kind="words", min_count=2).vocabulary_size == 2
    monkeypatch.setattr(cache, "train_tokenizer", refuse)
    assert load_or_train_tokenizer(source, stop=11, kind="words", min_count=1).to_json() == first.to_json()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures memory as Linux tells it")
def test_reading_a_large_file_keeps_memory_flat(tmp_path: Path) -> None:
    count = 1 << 30
    path = tmp_path / "sparse.ids"
    with path.open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, 1, 0, count, 0, count))
        file.truncate(_HEADER.size + count)
    tokens = TokenFile.open(path)
    before = peak = _resident_bytes()
    step = 1 << 18
    for number, start in enumerate(range(0, count, step)):
        tokens.read(start, start + 65)
        tokens.read(start, start + step)
        if number % 8 == 0:
            peak = max(peak, _resident_bytes())
    for start in np.random.default_rng(0).integers(0, count - 65, 20_000).tolist():
        tokens.read(start, start + 65)
    peak = max(peak, _resident_bytes())
    assert peak - before < 64 << 20
