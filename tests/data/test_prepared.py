"""Prepared ids: equal for any shards and processes, resumed after a kill, verified by checksums."""

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.data.corpus.cache import tokenize
from ensue.data.corpus.columns import ColumnSource
from ensue.data.corpus.prepared import PreparedTokens, ShardedTokens, TokenShard, is_prepared, prepare
from ensue.data.mapped_file import _HEADER, _MAGIC, TokenFile, check_tokens, header_of, write_tokens
from ensue.data.parallel import ordered_map
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError
from ensue.text.tokenizers import train_tokenizer
from training.resuming import Killed

WORDS = "the cat sat on a warm mat while rain fell over the quiet house\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TextSource:
    monkeypatch.setattr("ensue.data.sources.CHUNK_CHARACTERS", 40)
    monkeypatch.setattr("ensue.data.decoding.BLOCK_BYTES", 64)
    (tmp_path / "text.txt").write_text(WORDS * 30)
    return TextSource(tmp_path / "text.txt")


Prepare = Callable[..., PreparedTokens]


@pytest.fixture
def prepared(source: TextSource, tmp_path: Path) -> Prepare:
    """A function that prepares the source in a folder and dies before piece `killed_at`."""
    tokenizer = train_tokenizer("words", source.chunks())

    def run(
        name: str = "out", *, killed_at: int = -1, plan: dict[str, Any] | None = None, processes: int = 1,
        **options: Any,
    ) -> PreparedTokens:  # fmt: skip
        def encode(pieces: Iterable[str]) -> Iterator[Any]:
            for number, ids in enumerate(ordered_map(tokenizer.encode, pieces, processes)):
                if number == killed_at:
                    raise Killed
                yield ids

        texts: dict[str, tuple[TextSource, int, int | None]] = {
            "train": (source, 0, 1600),
            "valid": (source, 1600, 1800),
        }
        return prepare(
            tmp_path / name, plan or {"table": {}}, texts, tokenizer, tokenizer, encode=encode, shard_tokens=50,
            **options,
        )  # fmt: skip

    return run


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.suffix in (".ids", ".json")
    }


def test_prepared_ids_equal_those_of_the_text(source: TextSource, prepared: Prepare, tmp_path: Path) -> None:
    result = prepared()
    expected = tokenize(source, result.tokenizer, stop=1600)
    tokens = result.tokens("train")
    assert tokens is not None
    assert len(result.shards("train")) > 4
    assert (len(tokens), tokens.characters, tokens.unknown) == (len(expected), 1600, expected.unknown)
    expected_ids = expected.read(0, len(expected))
    for start, stop in ((0, len(expected_ids)), (0, 0), (3, 130), (49, 51), (len(expected_ids) - 1, len(expected_ids))):
        np.testing.assert_array_equal(tokens.read(start, stop), expected_ids[start:stop])
        np.testing.assert_array_equal(tokens.reversed().read(start, stop), expected_ids[::-1][start:stop])
    starts = np.array([0, 7, 48, 200])
    np.testing.assert_array_equal(tokens.read_rows(starts, 60), np.stack([expected_ids[s : s + 60] for s in starts]))
    np.testing.assert_array_equal(tokens.reversed().reversed().read(5, 99), expected_ids[5:99])
    valid = result.tokens("valid")
    assert valid is not None
    assert valid.characters == 200
    assert is_prepared(str(tmp_path / "out"))
    assert not is_prepared(str(tmp_path))


def test_a_killed_preparation_continues(prepared: Prepare, tmp_path: Path) -> None:
    prepared("undisturbed")
    for killed_at in (9, 11):
        with pytest.raises(Killed):
            prepared("killed", killed_at=killed_at)
        with pytest.raises(DataError, match="incomplete; the same `ensue prepare` continues it"):
            PreparedTokens(tmp_path / "killed")
    prepared("killed")
    assert tree(tmp_path / "killed") == tree(tmp_path / "undisturbed")
    assert prepared("killed", killed_at=0).fingerprint() == PreparedTokens(tmp_path / "undisturbed").fingerprint()
    with pytest.raises(DataError, match=r"killed: prepared with other settings: table was \{\}, and is now \{'min"):
        prepared("killed", plan={"table": {"min_count": 2}})


def test_missing_or_changed_shards_are_refused(prepared: Prepare, tmp_path: Path) -> None:
    result = prepared()
    second = tmp_path / "out" / "train" / "00001.ids"
    good = second.read_bytes()
    assert result.verify() == len(result.shards("train")) + len(result.shards("valid"))
    for content, expected in (
        (good[:-1], "a shard that has changed since the text was prepared"),
        ((tmp_path / "out" / "train" / "00000.ids").read_bytes(), "a shard that has changed"),
        (b"nothing of ours", "not a file of ids"),
    ):
        second.write_bytes(content)
        with pytest.raises(DataError, match=f"^{second}: {expected}"):
            PreparedTokens(tmp_path / "out").tokens("train")
    second.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # the header is valid
    with pytest.raises(DataError, match=f"^{second}: the ids are damaged$"):
        PreparedTokens(tmp_path / "out").verify()
    second.unlink()
    with pytest.raises(DataError, match=f"^{second}: a shard that cannot be read: No such file"):
        PreparedTokens(tmp_path / "out").tokens("train")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    shard = index["parts"]["train"][0]
    for content in (
        "[1]",
        "{",
        json.dumps({name: value for name, value in index.items() if name != "tokenizer"}),
        *(
            json.dumps({**index, "parts": {"train": [{**shard, name: value}]}})
            for name, value in (("file", 5), ("file", "../00000.ids"), ("characters", -1), ("unknown", 1.5))
        ),
        json.dumps({**index, "parts": {"train": [{"file": "x"}]}}),
        json.dumps({**index, "parts": 3}),
    ):
        (tmp_path / "out" / "index.json").write_text(content)
        with pytest.raises(DataError, match=r"index.json: damaged: "):
            PreparedTokens(tmp_path / "out")


def test_a_damaged_byte_is_reported_when_it_is_read(prepared: Prepare, tmp_path: Path) -> None:
    prepared()
    path = tmp_path / "out" / "train" / "00001.ids"
    good = bytearray(path.read_bytes())
    for position in (40, len(good) - 5, len(good) - 1):  # the first id, the last one, and its checksum
        bad = good.copy()
        bad[position] ^= 1
        path.write_bytes(bad)
        tokens = PreparedTokens(tmp_path / "out").tokens("train")
        assert tokens is not None
        tokens.read(0, 50)
        for read in (lambda text: text.read(0, len(text)), lambda text: text.reversed().read(0, len(text))):
            with pytest.raises(DataError, match=f"^{path}: damaged: bytes 0 to 4,096 have changed$"):
                read(tokens)
        with pytest.raises(DataError, match=f"^{path}: the ids are damaged$"):
            PreparedTokens(tmp_path / "out").verify()
    (header,) = {header_of(path).file_bytes}
    path.write_bytes(good[:header])  # a file of a version without checksums of pages
    assert PreparedTokens(tmp_path / "out").verify() > 1


@pytest.mark.parametrize("size", [1, 4055, 4056, 4057, 8151, 8152, 20_000])
def test_each_page_has_its_checksum(size: int, tmp_path: Path) -> None:
    path, ids = tmp_path / "some.ids", np.arange(size) % 251
    pieces = ((piece, len(piece)) for piece in np.split(ids, [size // 3, size // 2]))
    write_tokens(path, pieces, vocabulary_size=256, unknown_id=None)
    check_tokens(path)
    tokens = TokenFile.open(path, checks=True)
    np.testing.assert_array_equal(tokens.read(0, size), ids)
    content = bytearray(path.read_bytes())
    assert len(content) == header_of(path).sizes[1]
    content[40 + size - 1] ^= 1
    path.write_bytes(content)
    changed = TokenFile.open(path, checks=True)
    if size > 2 * 4096:
        changed.read(0, size - 4096)
    with pytest.raises(DataError, match="have changed"):
        changed.read(size - 1, size)


def test_at_most_the_allowed_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.data.corpus.prepared._max_open_files", lambda num_shards: 2)
    shards = []
    for number in range(5):
        write_tokens(path := tmp_path / f"{number}.ids", [(np.full(3, number), 3)], vocabulary_size=9, unknown_id=None)
        shards.append(TokenShard(path, 3, header_of(path).crc))
    tokens = ShardedTokens(tuple(shards), unknown=0, characters=0)
    assert tokens.read(0, 15).tolist() == np.repeat(np.arange(5), 3).tolist()
    assert tokens._cache._open.cache_info().currsize == 2


@pytest.mark.slow
@pytest.mark.parametrize("hard", [9, pytest.param(4096, marks=pytest.mark.slow)])
def test_more_shards_than_open_files_are_read(hard: int, tmp_path: Path) -> None:
    """A process with a low limit of open files reads all shards, and raises the limit where it can."""
    pytest.importorskip("resource")
    shards = 64
    for number in range(shards):
        path = tmp_path / f"{number:05}.ids"
        path.write_bytes(_HEADER.pack(_MAGIC, 2, 0, 1 << 28, 0, 1 << 28))
        os.truncate(path, 40 + 2 * (1 << 28))  # sparse: it takes a page
    child = f"""
        import os, resource
        from ensue.data.corpus.prepared import ShardedTokens, TokenShard
        from pathlib import Path
        opened = max(map(int, os.listdir("/dev/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 6, opened + {hard}))
        shards = tuple(TokenShard(Path({str(tmp_path)!r}) / f"{{n:05}}.ids", 1 << 28, 0) for n in range({shards}))
        tokens = ShardedTokens(shards, unknown=0, characters=0)
        for start in (*range(0, len(tokens), 1 << 28), *range(0, len(tokens), 1 << 30)):
            assert not tokens.read(start, start + 100).any()
            assert not tokens.reversed().read(start, start + 100).any()
        assert len(os.listdir('/dev/fd')) > 64 or {hard} < 64
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        ShardedTokens(shards, unknown=0, characters=0).read(0, 1)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(child)], capture_output=True, text=True, check=False)
    expected = "a shard that cannot be read: Too many open files; `ulimit -n 4096` raises the limit"
    assert run.stderr.splitlines()[-1].endswith(f"00000.ids: {expected}"), run.stderr


def test_damaged_or_missing_shards_are_prepared_again(prepared: Prepare, tmp_path: Path) -> None:
    out, output = tmp_path / "out", list[str]()
    prepared()
    before, train = tree(out), out / "train"
    prepared(notify=output.append)
    assert output == [f"reading the {len(before) - 2} existing shards"]
    (train / "00000.ids").unlink()
    (train / "00002.ids").write_bytes(before["train/00002.ids"][:-1])
    (train / "00003.ids").write_bytes(before["train/00003.ids"].replace(b"\3", b"\4"))
    (out / "valid" / "00000.ids").write_bytes(b"")
    (out / "tokenizer.json").unlink()
    output.clear()
    prepared(notify=output.append)
    assert tree(out) == before
    assert [line.partition(":")[0] for line in output[1:]] == [
        str(train / "00000.ids"), str(train / "00002.ids"), str(train / "00003.ids"), str(out / "valid" / "00000.ids")
    ]  # fmt: skip
    assert all(line.endswith("; the shard is replaced") for line in output[1:])


def test_a_full_disk_is_one_line_and_the_same_command_continues(
    prepared: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared("undisturbed")

    def write(path: Path, *args: Any, **options: Any) -> None:
        write_tokens(path, *args, **options)
        if path.name.startswith("00002"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = f"^{tmp_path / 'out'}: the disk is full; free some space and repeat the command$"
    with monkeypatch.context() as full:
        full.setattr("ensue.data.corpus.prepared.write_tokens", write)
        with pytest.raises(DataError, match=expected):
            prepared()
    assert sorted(path.name for path in (tmp_path / "out" / "train").iterdir()) == ["00000.ids", "00001.ids"]
    assert tree(prepared().folder) == tree(tmp_path / "undisturbed")


class KillingTokenizer:
    """A tokenizer that kills its process."""

    def encode(self, piece: str) -> Any:
        os._exit(9)


@pytest.mark.slow
def test_a_killed_process_is_an_error_of_one_line() -> None:
    tokenizer: Any = KillingTokenizer()
    with pytest.raises(EnsueError, match="a process was killed; repeat the command with"):
        list(ordered_map(tokenizer.encode, ["a", "b"], 2))


@pytest.mark.slow
def test_several_processes_write_equal_files(prepared: Prepare, tmp_path: Path) -> None:
    prepared("one")
    prepared("two", processes=2)
    assert tree(tmp_path / "two") == tree(tmp_path / "one")


def test_columns_of_json_lines_are_prepared(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"text": "one\\ntwo", "n": 1}\n\n{"text": null}\n{"text": "three\\n"}\n')
    assert "".join(ColumnSource(path, "text").chunks()) == "one\ntwo\nthree\n"
    for column, expected in (
        ("txt", f'^{path}:1: no "txt"; did you mean "text"\\?$'),
        ("n", f'^{path}:1: "n": expected a text, found 1$'),
    ):
        with pytest.raises(DataError, match=expected):
            list(ColumnSource(path, column).chunks())
    path.write_text("no json\n")
    with pytest.raises(DataError, match=f"^{path}:1: not JSON \\(Expecting value in column 1\\)$"):
        ColumnSource(path, "text")


@pytest.mark.slow
def test_columns_of_parquet_are_prepared(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    texts = [None if n % 7 == 0 else f"text {n}" for n in range(10_000)]
    parquet.write_table(
        pyarrow.table({"text": texts, "n": range(10_000)}), tmp_path / "some.parquet", row_group_size=999
    )
    result = "".join(ColumnSource(tmp_path / "some.parquet", "text").chunks())
    assert result == "".join(f"{text}\n" for text in texts if text)
    with pytest.raises(DataError, match=r'no "txt"; did you mean "text"\?$'):
        ColumnSource(tmp_path / "some.parquet", "txt")
    with pytest.raises(DataError, match=r'"n": expected a text, found 0$'):
        ColumnSource(tmp_path / "some.parquet", "n")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"bad.parquet: not Parquet: "):
        ColumnSource(tmp_path / "bad.parquet", "text")
