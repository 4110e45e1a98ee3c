"""`ensue cache`: what is kept, what is removed, and what never is."""

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
OF_OTHERS = {
    f"{HEX}.ids": b"no ids of ours", f"{HEX}.json": b'{"name": "a report"}', f"{HEX}.txt": b"",
    f"{HEX[:-1]}.json": b'{"kind": "words"}', f"{HEX.upper()}.json": b'{"kind": "words"}', "notes.txt": b"",
    "python.txt": b"", "profile.json": b'{"format":1}', "cells/a.so": b"", f"cells/{HEX}.so": b"",
    "machines/mine.json": b'{"format":1}', f"other/{HEX}.0123456789abcdef.so": b"", "a.partial": b"",
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds a thing of each kind, the ids being the oldest, and things of others, as old."""
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
    for name, content in OF_OTHERS.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
        os.utime(path / name, (0, 0))
    return path


def nouns(files: list[CachedFile] | None = None) -> list[str]:
    return sorted(entry.kind.noun for entry in (cached_files() if files is None else files))


def of_others(place: Path) -> dict[str, bytes]:
    return {name: (place / name).read_bytes() for name in OF_OTHERS}


def test_it_shows_what_is_kept(ensue: Ensue, place: Path) -> None:
    said = ensue("cache")
    where, _, *rows = said.out.splitlines()
    assert (said.status, said.err) == (0, "")
    assert where == f"{place}, at most 10 GB"
    shown = {" ".join(row.split()[:-3]): row.split()[-3:] for row in rows}
    size = next(entry.size for entry in cached_files() if entry.path.suffix == ".ids")
    used = time.strftime("%Y-%m-%d", time.localtime(time.time() - 50 * DAY))
    assert shown["ids of texts 1"] == [str(size), "bytes", used]
    assert set(shown) == {f"{kind.noun} 1" for kind in cache.KINDS} | {f"all {len(cache.KINDS)}"}


def test_an_empty_cache_and_one_that_is_not_there(
    ensue: Ensue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CELLS", str(tmp_path / "elsewhere"))
    for path in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("ENSUE_CACHE", str(path))
        assert ensue("cache").out.splitlines()[1] == f"{tmp_path / 'elsewhere'}, for compiled cells"
        assert ensue("cache", "--clear").out == f"removed 0 of 0 files, 0 bytes, from {path}\n"
    assert not (tmp_path / "nowhere").exists()


def test_all_of_it_goes_and_nothing_else(ensue: Ensue, place: Path) -> None:
    said = ensue("cache", "--clear").succeeded()
    assert said.out.startswith(f"removed {ALL} of {ALL} files, ")
    assert cached_files() == []
    assert of_others(place) == OF_OTHERS


@pytest.mark.parametrize(
    ("time", "left"), [("45d", 12), ("35 d", 10), ("1w", 2), ("1000h", 11), ("0s", 0), ("60d", 14)]
)
def test_what_is_old_goes(time: str, left: int, ensue: Ensue, place: Path) -> None:
    said = ensue("cache", "--older-than", time)
    assert said.out.startswith(f"removed {ALL - left} of {ALL - left} files, ")
    assert len(cached_files()) == left
    assert of_others(place) == OF_OTHERS


def test_what_cannot_be_understood(refused: Callable[..., str], place: Path) -> None:
    assert refused("cache", "--older-than", "soon") == "--older-than is 'soon'; expected a time like 30d, 12h or 2w"
    assert "not both" in refused("cache", "--older-than", "1d", "--clear")
    assert len(cached_files()) == ALL


def test_a_cache_that_is_a_file(refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "file"))
    assert refused("cache") == f"{tmp_path / 'file'}: cannot be read (Not a directory)"


def test_links_are_not_followed(ensue: Ensue, place: Path, tmp_path: Path) -> None:
    (place / "cells").rename(tmp_path / "elsewhere")
    (place / "cells").symlink_to(tmp_path / "elsewhere")
    (place / f"{HEX[::-1]}.ids").symlink_to(next(place.glob("*.ids")))
    assert ensue("cache", "--clear").out.startswith(f"removed {ALL - 1} of {ALL - 1} files, ")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 3
    assert (place / f"{HEX[::-1]}.ids").is_symlink()


def test_what_is_being_written_stays(ensue: Ensue, place: Path) -> None:
    with cache.atomic_file(place / f"{HEX}.ids") as partial:
        ensue("cache", "--clear")
        assert partial.exists()
        os.utime(partial, (0, 0))
        ensue("cache", "--older-than", "1d")
        assert not partial.exists()
        partial.write_bytes(b"")


def test_a_process_reads_on_when_its_ids_are_removed(ensue: Ensue, place: Path, tmp_path: Path) -> None:
    source = TextSource(tmp_path / "text.txt")
    tokenizer = load_or_train_tokenizer(source, stop=None, kind="words")
    tokens = tokenize(source, tokenizer)
    expected = tokens.read(0, len(tokens)).tolist()
    ensue("cache", "--clear")
    assert not list(place.glob("*.ids"))[1:]
    assert tokens.read(0, len(tokens)).tolist() == expected
    assert tokenize(source, tokenizer).read(0, len(tokens)).tolist() == expected


def test_the_bound_removes_what_was_used_longest_ago(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And spares what is in use, however much that is, and what is small and would come out otherwise."""
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
    assert of_others(place) == OF_OTHERS


@pytest.mark.usefixtures("place")
def test_what_another_process_removed_is_gone() -> None:
    files = cached_files()
    files[0].path.unlink()
    assert remove(files) == files


def test_the_limit_has_a_unit_and_another_text_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"500MB": 500 * 10**6, "2.5 gb": 25 * 10**8, "1k": 1000, "7": 7, "": 10**10}
    for text, expected in limits.items():
        monkeypatch.setenv("ENSUE_CACHE_LIMIT", text)
        assert size_limit() == expected
    for text in ("much", "-1GB", "1e9", "nan", "9" * 400):
        monkeypatch.setenv("ENSUE_CACHE_LIMIT", text)
        forget_notices()
        with pytest.warns(Notice, match="ENSUE_CACHE_LIMIT is .*, which is not a size like 500MB"):
            assert size_limit() == 10**10
