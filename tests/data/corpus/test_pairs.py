"""Readers of minimal pairs: small files in each published format, and the places of errors."""

import gzip
import lzma
from pathlib import Path

import pytest

from ensue.data.corpus.pairs import MinimalPair, pair_files, read_pairs
from ensue.errors import DataError

JSON = '{"sentence_good": "a\\u2028b.", "sentence_bad": "b.", "UID": "x"}\n'
TABLE = (
    "pattern\tform\tclass\tprefix\n"
    'p\tis\tcorrect\t"he said "" that the key"\n'
    'p\tare\twrong\t"he said "" that the key"\n'
    "p\tgoes\tcorrect\t\n"
    "p\tgo\twrong\t\n"
)
PAIRS = [MinimalPair('he said " that the key is ', 'he said " that the key are '), MinimalPair("goes ", "go ")]


def write_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    data = text.encode()
    path.write_bytes(lzma.compress(data) if name.endswith(".xz") else gzip.compress(data) if "gz" in name else data)
    return path


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.jsonl.xz"])
def test_only_line_ends_end_a_line_of_json(tmp_path: Path, name: str) -> None:
    raw = '{"sentence_good": "raw \u2028 separator", "sentence_bad": "b"}\r\n\n'
    path = write_file(tmp_path, name, JSON + raw + JSON.rstrip())
    pairs = list(read_pairs(path))
    assert pairs == [
        MinimalPair("a\u2028b.\n", "b.\n"),
        MinimalPair("raw \u2028 separator\n", "b\n"),
        MinimalPair("a\u2028b.\n", "b.\n"),
    ]


def test_minimal_pairs_are_read_from_tables(tmp_path: Path) -> None:
    assert list(read_pairs(write_file(tmp_path, "x.tab.xz", TABLE))) == PAIRS


@pytest.mark.parametrize("prefix", ['"Yes', '"Yes" he said "no"', "a\rb", "x" * 200_000, '"'])
def test_prefixes_with_quotes_and_long_ones_are_read_unchanged(prefix: str, tmp_path: Path) -> None:
    rows = f"pattern\tform\tclass\tprefix\np\tis\tcorrect\t{prefix}\np\tare\twrong\t{prefix}\n"
    assert list(read_pairs(write_file(tmp_path, "x.tab", rows))) == [MinimalPair(f"{prefix} is ", f"{prefix} are ")]


@pytest.mark.parametrize("compression", ["", ".xz"])
@pytest.mark.parametrize(
    "gold", ["{place}\t{good}\t{bad}\t0", "p\t1\t2\t{place}\tVERB\tm\t{good}\t{bad}\tbe\t1\tNOUN\tthe words"]
)
def test_minimal_pairs_are_read_from_sentences_with_gold(tmp_path: Path, gold: str, compression: str) -> None:
    sentences = ['he said " that the key were there . <eos>', "went on <eos>"]
    lines = [gold.format(place=6, good="is", bad="are"), gold.format(place=0, good="goes", bad="go")]
    path = write_file(tmp_path, "x.text", "\n".join(sentences) + "\n")
    write_file(tmp_path, f"x.gold{compression}", "\n".join(lines) + "\n")
    assert list(read_pairs(path)) == PAIRS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", JSON + "{broken\n", r"x\.jsonl:2: not JSON \(Expecting"),
        ("x.jsonl", JSON + '["a", "b"]\n', r"x\.jsonl:2: expected"),
        ("x.jsonl", '\n{"sentence_good": "a", "sentence_bad": 3}\n', r"x\.jsonl:2: expected .*sentence_good"),
        ("x.tab", "a\tform\tclass\n", r'x\.tab:1: the header has no column "prefix"'),
        ("x.tab", TABLE + "p\tgo\twrong\t\n", r'x\.tab:6: expected the "correct" form'),
        ("x.tab", TABLE + "p\tgo\tcorrect\ta\np\tgoes\twrong\tb\n", r'x\.tab:7: expected the "wrong" form'),
        ("x.tab", TABLE + "p\tgo\n", r"x\.tab:6: expected 4 columns separated by tabs, found 2"),
        ("x.jsonl", JSON + "[" * 400 + "]" * 400 + "\n", r"x\.jsonl:2: unsupported JSON: nested"),
        ("x.jsonl", JSON + "9" * 5000 + "\n", r"x\.jsonl:2: not JSON that can be read: a number"),
        ("x.tab", TABLE + "p\tgo\tcorrect\t\n", r'x\.tab:6: the last pair has no "wrong" form'),
        ("x.text", "a b\n", r"x\.text: expected x\.gold with the pairs"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write_file(tmp_path, name, text)
    with pytest.raises(DataError, match=message):
        list(read_pairs(path))


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("1\tis\tare\t0\n", r"x\.gold:2: expected 4 or 12 columns"),
        ("1\tis\tare\t0\nx\tis\tare\t0\n", r"x\.gold:2: expected 4 or 12 columns"),
        ("1\tis\tare\t0\n9\tis\tare\t0\n", r"x\.gold:2: expected an index below 2, found 9"),
        (f"{'1' * 5000}\tis\tare\t0\n", r"x\.gold:1: expected 4 or 12 columns"),
        ("0\tis\tare\t0\n" * 3, r"x\.gold:3: more lines than x\.text"),
    ],
)
def test_gold_that_does_not_fit_the_sentences_is_refused(tmp_path: Path, gold: str, message: str) -> None:
    path = write_file(tmp_path, "x.text", "a b\nc d\n")
    write_file(tmp_path, "x.gold", gold)
    with pytest.raises(DataError, match=message):
        list(read_pairs(path))


def test_a_folder_lists_each_file_of_pairs_once(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.text", "a.gold", "a.tab.xz", "a.eval", "c.tab", "README.md"):
        write_file(tmp_path, name, "x\n")
    assert [path.name for path in pair_files(tmp_path)] == ["a.text", "b.jsonl", "c.tab"]
    assert [path.name for path in pair_files(str(tmp_path / "*.tab.xz"))] == ["a.tab.xz"]
    with pytest.raises(DataError, match=r"README\.md: no minimal pairs; expected a file named \*\.jsonl"):
        pair_files(tmp_path / "README.md")


@pytest.mark.slow
def test_both_forms_of_the_published_data_have_equal_pairs(shared_data: Path) -> None:
    folder = shared_data / "colorless_green" / "English"
    table, sentences = (list(read_pairs(folder / name)) for name in ("generated.tab.xz", "generated.text"))
    assert len(table) == len(sentences) == 410
    # the table shows some words as <unk>; the forms are the same
    assert [pair.good.split()[-1] for pair in table] == [pair.good.split()[-1] for pair in sentences]
    assert [pair.bad.split()[-1] for pair in table] == [pair.bad.split()[-1] for pair in sentences]
    assert len(list(read_pairs(shared_data / "colorless_green/linzen_testset/subj_agr_filtered.text.xz"))) == 7489
