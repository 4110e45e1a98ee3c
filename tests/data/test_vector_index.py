"""The index of a file of word vectors gives the vectors of a reading, also after changes of the file."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from ensue.cache import cache_directory
from ensue.data import vectors as readers
from ensue.data.vectors import VectorIndex, read_vectors
from ensue.errors import DataError
from written_files import write_file

ROWS = {"the": (1.0, -2.5), "résumé": (3.0, 0.125), "New York": (0.5, 0.25), "the cat": (7.0, 8.0), "": (9.0, 9.0)}


def text(rows: dict[str, tuple[float, float]]) -> bytes:
    return "".join(f"{word} {a} {b}\n" for word, (a, b) in rows.items()).encode()


def binary() -> bytes:
    rows = b"".join(word.encode() + b" " + np.array(row, "<f4").tobytes() + b"\n" for word, row in ROWS.items() if word)
    rows = rows.replace(b"New York", b"New_York").replace(b"the cat", b"the_cat")
    return f"{len(ROWS) - 1} 2\n".encode() + rows


CONTENTS = {
    "glove.txt": text(ROWS) + b"the 5 5\n",
    "words.vec": b"5 2\n" + text(ROWS),
    "marked.txt": b"\xef\xbb\xbf" + text(ROWS).replace(b"\n", b" \r\n"),
    "packed.txt.gz": gzip.compress(text(ROWS)),
    "words.bin": binary(),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_the_index_gives_the_vectors_of_a_reading(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(CONTENTS[name])
    words, vectors = read_vectors(tmp_path / name)
    index = VectorIndex(tmp_path / name)
    result, rows = index.find(words)
    assert (result, rows.tolist(), index.dimension) == (words, vectors.tolist(), 2)
    monkeypatch.setattr(readers, "open_table", lambda file: pytest.fail("the file is read again"))
    assert index.find(["nothing", words[1], "x"])[0] == [words[1]]
    assert index.find([])[1].shape == (0, 2)


def test_the_index_is_used_until_the_file_changes(tmp_path: Path) -> None:
    path = write_file(tmp_path / "glove.txt.gz", gzip.compress(text(ROWS)))
    assert VectorIndex(path).find(["the"])[1].tolist() == [[1.0, -2.5]]
    modified = {file.name: file.stat().st_mtime_ns for file in cache_directory().glob("*.places")}
    assert VectorIndex(path).find(["New York"])[0] == ["New York"]
    assert len(modified) <= len(list(cache_directory().glob("*.places"))) == len(modified)
    path.write_bytes(gzip.compress(text({"a": (0.0, 0.0), "the": (4.0, 4.0)})))
    assert VectorIndex(path).find(["the"])[1].tolist() == [[4.0, 4.0]]


@pytest.mark.parametrize("left", [0, 20, 130])
def test_an_index_that_was_cut_off_is_computed_again(tmp_path: Path, left: int) -> None:
    path = write_file(tmp_path / "glove.txt", text(ROWS))
    for _ in range(2):
        assert VectorIndex(path).find(["the"])[1].tolist() == [[1.0, -2.5]]
        index_file = max(cache_directory().glob("*.places"), key=lambda file: file.stat().st_mtime_ns)
        index_file.write_bytes(index_file.read_bytes()[:left])


def test_without_space_in_the_cache_the_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path / "glove.txt.gz", gzip.compress(text(ROWS)))
    monkeypatch.setenv("ENSUE_CACHE_LIMIT", "1B")
    index = VectorIndex(path)
    monkeypatch.setattr(index, "_write_index", lambda path: pytest.fail("there is no room"))
    assert index.find(["the"])[1].tolist() == [[1.0, -2.5]]


def test_a_wrong_number_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.vec").write_text("a 1 2\nb 1 nan\n")
    index = VectorIndex(tmp_path / "x.vec")
    assert index.find(["a"])[1].tolist() == [[1.0, 2.0]]
    with pytest.raises(DataError, match=r'x.vec:2: a number of "b" is not finite'):
        index.find(["b"])
