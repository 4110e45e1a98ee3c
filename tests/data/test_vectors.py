"""Files of word vectors in each format, with empty words, wrong headers and truncation."""

import gzip
import lzma
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ensue.data.vectors import ByteReader, propose_vectors, read_vectors
from ensue.errors import DataError

TEXT = "the 0.5 -1 2e-1\nof 1 2 3\n, 4 5 6\n"
MATRIX = [[0.5, -1, 0.2], [1, 2, 3], [4, 5, 6]]


def write_file(folder: Path, data: str | bytes, name: str = "x.vec") -> Path:
    path = folder / name
    raw = data.encode() if isinstance(data, str) else data
    path.write_bytes({".xz": lzma.compress, ".gz": gzip.compress}.get(path.suffix, bytes)(raw))
    return path


def binary(words: list[str], matrix: np.ndarray, *, count: int | None = None, end: bytes = b"") -> bytes:
    rows = [word.encode() + b" " + row.astype("<f4").tobytes() + end for word, row in zip(words, matrix, strict=True)]
    return f"{len(words) if count is None else count} {matrix.shape[1]}\n".encode() + b"".join(rows)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", ["x.txt", "x.vec.gz", "x.vec.xz"])
@pytest.mark.parametrize("header", ["", "3 3\n", "900000 3\n", "1 3\n", "\ufeff", "\ufeff3 3\n"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n", "\n\n"])
def test_vectors_of_text_are_read(tmp_path: Path, name: str, header: str, end: str) -> None:
    path = write_file(tmp_path, (header + TEXT).replace("\n", end), name)
    words, matrix = read_vectors(path)
    assert (words, matrix.dtype) == (["the", "of", ","], np.float32)
    np.testing.assert_array_equal(matrix, np.array(MATRIX, np.float32))
    words, matrix = read_vectors(path, ["of", "absent", "\ud83d", ""])
    assert words == ["of"]
    np.testing.assert_array_equal(matrix, [[1, 2, 3]])


def test_without_words_no_vector_is_read(tmp_path: Path) -> None:
    assert read_vectors(write_file(tmp_path, TEXT), set())[1].shape == (0, 3)
    words, matrix = read_vectors(write_file(tmp_path, TEXT), {"absent"})
    assert (words, matrix.shape) == ([], (0, 3))


def test_a_file_without_a_last_line_end_is_read(tmp_path: Path) -> None:
    assert read_vectors(write_file(tmp_path, TEXT.rstrip()))[0] == ["the", "of", ","]


def test_unusual_words_are_read(tmp_path: Path) -> None:
    rows = [
        ". . . 1 2 3", " 7 8 9", "3.5 1 1 1", "a\u00a0b 2 2 2", "\u2028\x85 3 3 3", "2 4 4 4", "of 9 9 9",
        "e\u0301 5 5 5",
    ]  # fmt: skip
    data = (TEXT + "\n".join(rows)).encode() + b"\nclich\xe9 1 1 1\n"
    words, matrix = read_vectors(write_file(tmp_path, data))
    assert words == ["the", "of", ",", ". . .", "3.5", "a\u00a0b", "\u2028\x85", "2", "e\u0301"]
    assert matrix[:, 2].tolist() == pytest.approx([0.2, 3, 6, 3, 1, 2, 3, 4, 5])
    assert read_vectors(write_file(tmp_path, data), {"of", ". . .", "", "clich"})[0] == ["of", ". . ."]


def test_one_wrong_row_does_not_set_the_dimension(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.vec:1: expected a word and 3 numbers, found 2$"):
        read_vectors(write_file(tmp_path, "a 1 2\n" + TEXT))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "a 1 2\n", "x.vec:4: expected a word and 3 numbers, found 2"),
        (TEXT + "\na 1 2 3 4\n", "x.vec:5: expected a word and 3 numbers, found 4"),
        ("3 2\n" + TEXT, "x.vec:2: expected a word and 2 numbers, found 3"),
        ("3 4\n" + TEXT, "x.vec:2: expected a word and 4 numbers, found 3"),
        (TEXT + "a 1 2 x\n", 'x.vec:4: expected 3 numbers after the word, found "x"'),
        (TEXT + "a 1 2\0 2\n", 'x.vec:4: expected 3 numbers after the word, found "2\\x00"'),
        (TEXT + "a 1 2 nan\n", 'x.vec:4: a number of "a" is not finite'),
        (TEXT + "a 1 2 1e300\n", 'x.vec:4: a number of "a" is not finite'),
        (
            "no numbers here\n",
            "x.vec:1: no word vectors: expected lines of a word and its numbers, with blanks between them",
        ),
        ("\n\n", "x.vec:1: no word vectors: expected lines of a word and its numbers, with blanks between them"),
        ("", "x.vec: the text is empty"),
        (b"PK\x03\x04\x00", "x.vec: a zip archive; unpack it first"),
        (
            b"\xba\x16\x4f\x2f\x0c\x00",
            "x.vec: no word vectors, but a fastText model; import it with `ensue import`, or use its .vec file",
        ),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write_file(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_vectors(path)
    assert str(caught.value) == f"{path.parent}/{message}"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    write_file(tmp_path, TEXT, "glove.txt")
    with pytest.raises(DataError, match=r'no such file or folder; did you mean "glove\.txt"\?'):
        read_vectors(tmp_path / "glvoe.txt")
    (tmp_path / "x.xz").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"damaged, or not a \.xz file"):
        read_vectors(tmp_path / "x.xz")


@pytest.mark.parametrize("end", [b"", b"\n"])
@given(
    words=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \n"), min_size=1), min_size=2, unique=True
    ),
    data=st.data(),
)
def test_binary_vectors_are_read(
    tmp_path_factory: pytest.TempPathFactory, end: bytes, words: list[str], data: st.DataObject
) -> None:
    shape = (len(words), 40)
    numbers = st.floats(-10, 10, width=32).filter(lambda number: number != 0)
    matrix = data.draw(arrays.arrays(np.float32, shape, elements=numbers, fill=st.just(np.float32(1 / 3))))
    matrix[0] = np.random.default_rng(0).normal(size=40)  # equal bytes alone could be text
    path = write_file(tmp_path_factory.mktemp("vectors"), binary(words, matrix, end=end), "x.bin.gz")
    result, vectors = read_vectors(path)
    assert result == words
    np.testing.assert_array_equal(vectors, matrix)
    chosen = data.draw(st.sets(st.sampled_from(words)))
    result, vectors = read_vectors(path, chosen | {"absent word"})
    assert result == [word for word in words if word in chosen]
    np.testing.assert_array_equal(vectors, matrix[[words.index(word) for word in result]])


def test_a_truncated_binary_file_is_reported(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(3, 8))
    data = binary(["a", "b", "c"], matrix)
    for cut in (1, 40, 64):
        path = write_file(tmp_path, data[:-cut])
        with pytest.raises(DataError, match=r"x\.vec: truncated: [012] vectors, but the header has the number 3"):
            read_vectors(path)
        assert read_vectors(path, ["a"])[0] == ["a"]  # it is before the cut
    for count in (4, 10**15 - 1):
        with pytest.raises(DataError, match="truncated: 3 vectors, but the header has the number"):
            read_vectors(write_file(tmp_path, binary(["a", "b", "c"], matrix, count=count)))
    assert read_vectors(write_file(tmp_path, binary(["a", "b", "c"], matrix, count=2)))[0] == ["a", "b"]


def test_duplicates_and_wrong_numbers_in_binary_files_are_reported(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    words, vectors = read_vectors(write_file(tmp_path, binary(["a", "a", "b"], matrix)))
    assert words == ["a", "b"]
    np.testing.assert_array_equal(vectors, matrix[[0, 2]])
    matrix[2, 3] = np.inf
    with pytest.raises(DataError, match=r'x\.vec: a number of "b" is not finite'):
        read_vectors(write_file(tmp_path, binary(["a", "a", "b"], matrix)))


@given(st.binary(max_size=60), st.lists(st.integers(0, 9), max_size=10))
def test_bytes_are_read_by_lines_or_counts(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, steps: list[int]
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x"
    path.write_bytes(data)
    reader = ByteReader(path)
    for step in steps:
        assert reader.peek(step) == data[:step]
        if step % 2:
            line, end, rest = data.partition(b"\n")
            assert reader.read_line() == (line if line or end else None)
        elif step % 4:
            piece, result, rest = data.partition(b" ")
            assert reader.read_until(b" ") == (piece if result else None)
            rest = rest if result else data
        else:
            assert reader.read(step) == (data[:step] if step <= len(data) else None)
            rest = data[step:] if step <= len(data) else data
        data = rest


def test_packed_numbers_are_little_endian(tmp_path: Path) -> None:
    data = b"2 2\n\x00a " + struct.pack("<2f", 1.5, -2) + b"\nb " + struct.pack("<2f", 3, 4) + b"\n"
    words, matrix = read_vectors(write_file(tmp_path, data))
    assert (words, matrix.tolist()) == (["\x00a", "b"], [[1.5, -2], [3, 4]])


@pytest.mark.parametrize(
    ("text", "installed", "is_proposed"),
    [
        ("the sea and the boat in the bay", ["en-vectors"], True), ("the sea and the boat in the bay", ["en"], False),
        ("das Meer und das Boot in der Bucht liegen still", ["en-vectors"], False), ("", ["en-vectors"], False),
    ],
)  # fmt: skip
def test_installed_vectors_are_proposed_for_english(
    text: str, installed: list[str], is_proposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.data.vectors.installed_models", lambda: dict.fromkeys(installed))
    lines = list(propose_vectors(Counter(text.split())))
    assert [line.startswith("features.vectors=en-vectors may help") for line in lines] == [True] * is_proposed
