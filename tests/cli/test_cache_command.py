"""`ensue cache` shows and removes files of the cache, and no others."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue import cache
from ensue.cache import CachedFile, cached_files, make_room, remove, size_limit, write_cached
from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.sources import TextSource
from ensue.notices import Notice
from ensue.private_folder import private_folder
from forgetting import forget_notices

DAY = 24 * 3600
ALL = len(cache.KINDS)
HEX = "0123456789abcdef" * 2
OTHER_FILES = {
    f"{HEX}.ids": b"no ids of ours", f"{HEX}.json": b'{"name": "a report"}', f"{HEX}.txt": b"",
    f"{HEX[:-1]}.json": b'{"kind": "words"}', f"{HEX.upper()}.json": b'{"kind": "words"}', "notes.txt": b"",
    "python.txt": b"", "profile.json": b'{"format":1}', "cells/a.so": b"", f"cells/{HEX}.so": b"",
    "machines/mine.json": b'{"format":1}', f"other/{HEX}.0123456789abcdef.so": b"", "a.partial": b"",
}  # fmt: skip


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a file of each kind, the ids the oldest, and with old files of other programs."""
    path = tmp_path / "cache"
    monkeypatch.setenv("ENSUE_CACHE", str(path))
    monkeypatch.delenv("ENSUE_CELLS")
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 40)
    source = TextSource(tmp_path / "text.txt")
    tokenize(source, load_or_train_tokenizer(source, stop=None, kind="words"))
    with private_folder(path / "cells") as cells:
        cells.write(HEX, ".so", b"compiled")
    (path / "machines").mkdir()
    (path / "machines" / f"{HEX[:16]}.json").write_text('{"format":1}')
    (path / "data").mkdir()
    (path / "data" / f"rows-{HEX[:16]}.jsonl").write_text("{}")
    (path / f"{HEX}.pairs").write_bytes(b"ensuprs1")
    for suffix in (".npy", ".places", ".vectors", ".ngrams"):
        (path / f"{HEX}{suffix}").write_bytes(b"\x93NUMPY")
    (path / f"{HEX}.rows").write_bytes(b"ensuerow")
    (path / f"{HEX}.digest").write_bytes(b"sha256 ")
    (path / f"{HEX}.output").write_bytes(b"ensue wrote ")
    write_cached(f"ensue-python-{HEX[:8]}.txt", lambda partial: partial.write_text("text"))
    for days, entry in enumerate(sorted(cached_files(), key=lambda entry: entry.path.suffix != ".ids")):
        os.utime(entry.path, (time.time() - (50 - 3.8 * days) * DAY,) * 2)
    for name, content in OTHER_FILES.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
        os.utime(path / name, (0, 0))
    return path


def nouns(files: list[CachedFile] | None = None) -> list[str]:
    return sorted(entry.kind.noun for entry in (cached_files() if files is None else files))


def other_files(cache_folder: Path) -> dict[str, bytes]:
    return {name: (cache_folder / name).read_bytes() for name in OTHER_FILES}


def test_the_command_lists_the_files_by_kind(ensue: Ensue, cache_folder: Path) -> None:
    result = ensue("cache")
    heading, _, *rows = result.out.splitlines()
    assert (result.status, result.err) == (0, "")
    assert heading == f"{cache_folder}, at most 10 GB"
    shown = {" ".join(row.split()[:-3]): row.split()[-3:] for row in rows}
    size = next(entry.size for entry in cached_files() if entry.path.suffix == ".ids")
    used = time.strftime("%Y-%m-%d", time.localtime(time.time() - 50 * DAY))
    assert shown["ids of texts 1"] == [str(size), "bytes", used]
    assert set(shown) == {f"{kind.noun} 1" for kind in cache.KINDS} | {f"all {len(cache.KINDS)}"}


def test_empty_and_missing_caches_are_shown(ensue: Ensue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_CELLS", str(tmp_path / "elsewhere"))
    for path in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("ENSUE_CACHE", str(path))
        assert ensue("cache").out.splitlines()[1] == f"{tmp_path / 'elsewhere'}, for compiled cells"
        assert ensue("cache", "--clear").out == f"removed 0 of 0 files, 0 bytes, from {path}\n"
    assert not (tmp_path / "nowhere").exists()


def test_clear_removes_all_files_of_the_cache_and_no_others(ensue: Ensue, cache_folder: Path) -> None:
    result = ensue("cache", "--clear").succeeded()
    assert result.out.startswith(f"removed {ALL} of {ALL} files, ")
    assert cached_files() == []
    assert other_files(cache_folder) == OTHER_FILES


@pytest.mark.parametrize(
    ("time", "left"), [("45d", 12), ("35 d", 10), ("1w", 2), ("1000h", 11), ("0s", 0), ("60d", 14)]
)
def test_old_files_are_removed(time: str, left: int, ensue: Ensue, cache_folder: Path) -> None:
    result = ensue("cache", "--older-than", time)
    assert result.out.startswith(f"removed {ALL - left} of {ALL - left} files, ")
    assert len(cached_files()) == left
    assert other_files(cache_folder) == OTHER_FILES


def test_wrong_options_are_refused(refused: Callable[..., str], cache_folder: Path) -> None:
    assert refused("cache", "--older-than", "soon") == "--older-than is 'soon'; expected a time like 30d, 12h or 2w"
    assert "not both" in refused("cache", "--older-than", "1d", "--clear")
    assert len(cached_files()) == ALL


def test_a_file_as_cache_is_refused(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "file"))
    assert refused("cache") == f"{tmp_path / 'file'}: cannot be read (Not a directory)"


def test_links_are_not_followed(ensue: Ensue, cache_folder: Path, tmp_path: Path) -> None:
    (cache_folder / "cells").rename(tmp_path / "elsewhere")
    (cache_folder / "cells").symlink_to(tmp_path / "elsewhere")
    (cache_folder / f"{HEX[::-1]}.ids").symlink_to(next(cache_folder.glob("*.ids")))
    assert ensue("cache", "--clear").out.startswith(f"removed {ALL - 1} of {ALL - 1} files, ")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 3
    assert (cache_folder / f"{HEX[::-1]}.ids").is_symlink()


def test_files_that_are_being_written_stay(ensue: Ensue, cache_folder: Path) -> None:
    with cache.atomic_file(cache_folder / f"{HEX}.ids") as partial:
        ensue("cache", "--clear")
        assert partial.exists()
        os.utime(partial, (0, 0))
        ensue("cache", "--older-than", "1d")
        assert not partial.exists()
        partial.write_bytes(b"")


def test_a_process_continues_to_read_its_removed_ids(ensue: Ensue, cache_folder: Path, tmp_path: Path) -> None:
    source = TextSource(tmp_path / "text.txt")
    tokenizer = load_or_train_tokenizer(source, stop=None, kind="words")
    tokens = tokenize(source, tokenizer)
    expected = tokens.read(0, len(tokens)).tolist()
    ensue("cache", "--clear")
    assert not list(cache_folder.glob("*.ids"))[1:]
    assert tokens.read(0, len(tokens)).tolist() == expected
    assert tokenize(source, tokenizer).read(0, len(tokens)).tolist() == expected


def test_the_bound_removes_the_least_recently_used_files(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spares files in use, of any size, and small files whose loss would change results."""
    total = sum(entry.size for entry in cached_files())
    monkeypatch.setenv("ENSUE_CACHE_LIMIT", str(total))
    make_room()
    assert len(cached_files()) == ALL
    monkeypatch.setenv("ENSUE_CACHE_LIMIT", f"{total - 1}B")
    make_room()
    assert "ids of texts" not in nouns()
    assert len(cached_files()) == ALL - 1
    monkeypatch.setenv("ENSUE_CACHE_LIMIT", "0")
    write_cached(f"ensue-python-{'f' * 8}.txt", lambda partial: partial.write_text("more"))
    assert nouns() == ["profiles of machines", "texts of the quickstart"]
    assert other_files(cache_folder) == OTHER_FILES


@pytest.mark.usefixtures("cache_folder")
def test_a_file_that_another_process_removed_is_skipped() -> None:
    files = cached_files()
    files[0].path.unlink()
    assert remove(files) == files


def test_a_limit_without_a_valid_unit_gives_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"500MB": 500 * 10**6, "2.5 gb": 25 * 10**8, "1k": 1000, "7": 7, "": 10**10}
    for text, expected in limits.items():
        monkeypatch.setenv("ENSUE_CACHE_LIMIT", text)
        assert size_limit() == expected
    for text in ("much", "-1GB", "1e9", "nan", "9" * 400):
        monkeypatch.setenv("ENSUE_CACHE_LIMIT", text)
        forget_notices()
        with pytest.warns(Notice, match="ENSUE_CACHE_LIMIT is .*, which is not a size like 500MB"):
            assert size_limit() == 10**10
