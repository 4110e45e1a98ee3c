"""Aligned files: pairs of lines, and the place of missing lines."""

import gzip
import random
from pathlib import Path

import pytest

from ensue.data.examples import PairSource
from ensue.data.examples.source import find_gap
from ensue.data.records.labeled_files import SKIP_REMEDY
from ensue.errors import DataError

LONG = "aaaaaaaaaa\nccc\nbb\naaaaaaaaaaa\nc\naaaaaa\nccccccccccccccc\nb\n"


def both(path: Path, left: str, right: str) -> str:
    for name, text in (("a.en", left), ("a.de", right)):
        (path / name).write_bytes(text.encode())
    return f"{path / 'a.en'},{path / 'a.de'}"


def test_lines_of_the_same_number_are_pairs(tmp_path: Path) -> None:
    pairs = PairSource(both(tmp_path, "one\r\n\nthree\u2028x\tstays", "eins\n\ndrei\n"))
    assert [(pair.sources, pair.targets, pair.line) for pair in pairs] == [
        (("one",), ("eins",), 1),
        (("three\u2028x\tstays",), ("drei",), 3),
    ]
    assert str(pairs.layout).startswith("aligned, source: a line of the first file")


def test_files_may_be_compressed_and_have_commas_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "a,b.gz").write_bytes(gzip.compress(b"x\n"))
    (tmp_path / "c").write_bytes(b"y\n")
    assert [pair.targets for pair in PairSource(f"{tmp_path / 'a,b.gz'},{tmp_path / 'c'}")] == [("y",)]
    (tmp_path / "d,e").write_bytes(b"x\ty\n")
    assert [pair.targets for pair in PairSource(tmp_path / "d,e")] == [("y",)]


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("a\n\nc\n", "x\ny\nz\n", 'a.en:2: an empty source, whose target is "y"; {1}'),
        ("a\nb\nc\n", "x\n \nz\n", 'a.de:2: an empty target, whose source is "b"; {1}'),
        ("a\nb\nc\n", "x\n\n",
         "a.de: 2 lines, but {0}a.en has 3; line 2 is the first that is empty in only one ({0}a.de)"),
        (LONG, LONG.replace("bb\n", "", 1),
         "a.de: 7 lines, but {0}a.en has 8; by their lengths a line is missing at about line 3"),
        ("a\nbbb\n", "x\nyyy\nzzzz\nz\n",
         "a.en: 2 lines, but {0}a.de has 4; by their lengths 2 lines are missing at its end"),
        ("", "x\n", "a.en: 0 lines, but {0}a.de has 1"),
        ("", "", "a.en: no lines"),
        ("a\n", "x\0\n", "a.de:1: a NUL character in column 2; expected text"),
    ],
)  # fmt: skip
def test_misaligned_files_are_refused_with_the_line(left: str, right: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        list(PairSource(both(tmp_path, left, right)))
    assert error.value.in_options() == f"{tmp_path}/{message.format(f'{tmp_path}/', SKIP_REMEDY)}"


@pytest.mark.parametrize("lost", [1, 3])
def test_the_line_where_lines_are_missing_is_found_by_lengths(lost: int) -> None:
    draw = random.Random(lost)
    for number in (0, 40, 117, 300 - lost):
        long = [draw.randint(5, 120) for _ in range(300)]
        short = [round(length * draw.uniform(0.9, 1.4)) for length in long]
        del short[number : number + lost]
        assert abs(find_gap(short, long) - number) <= 2


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("{0}/a.en,{0}/a.fr", {}, 'a.fr: no such file or folder; did you mean "a.'),
        ("{0}/a.en,{0}/b,c", {}, "expected two files with a comma between them, such as train.en,train.de"),
        ("{0}/a.en,{0}", {}, ": expected a single file on each side of the comma, found"),
        ("{0}/a.?n,{0}/a.de", {}, "a.de: no file matches"),
        ('["b.x,b.y", "a.x,a.y", "a.x,a.y"]', {}, "a.x,a.y: is named twice"),
        ("{0}/a.en,{0}/a.de", {"sources": ["en"]}, "aligned files have no columns; data.sources is for one file"),
        ("{0}/a.en,{0}/a.de", {"format": "tsv"}, "aligned files have no columns; data.format is for one file"),
    ],
)  # fmt: skip
def test_unreadable_locations_are_refused(location: str, options: dict[str, str], message: str, tmp_path: Path) -> None:
    both(tmp_path, "a\n", "b\n")
    with pytest.raises(DataError) as error:
        PairSource(location.replace("{0}", str(tmp_path)), **options)  # type: ignore[arg-type]
    assert message in str(error.value)
