"""Words in sentences with their senses: the published formats, and invalid files."""

import gzip
import json
from pathlib import Path

import pytest

from ensue.errors import DataError
from ensue.extensions.bidirectional.word_uses import (
    LabeledUse,
    UsePair,
    WordSenses,
    WordUse,
    read_senses,
    read_use_pairs,
)

FILES = {
    "classes_map.txt": '{"0": "river", "1": "money"}', "train.data.txt": "1\tthe bank was wet\n2\the robbed banks\n",
    "train.gold.txt": "0\n1\n", "test.data.txt": "0\tbank\n", "test.gold.txt": "0\n",
}  # fmt: skip


def word_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_senses_are_read_from_a_folder_for_each_word(tmp_path: Path) -> None:
    word_folder(tmp_path / "bank")
    packed = word_folder(tmp_path / "arm")
    (packed / "train.data.txt.gz").write_bytes(gzip.compress((packed / "train.data.txt").read_bytes()))
    (packed / "train.data.txt").unlink()
    uses = [
        LabeledUse(WordUse(("the", "bank", "was", "wet"), 1), "river"),
        LabeledUse(WordUse(("he", "robbed", "banks"), 2), "money"),
    ]
    test = [LabeledUse(WordUse(("bank",), 0), "river")]
    assert read_senses(tmp_path) == [WordSenses("arm", uses, test), WordSenses("bank", uses, test)]
    assert read_senses(tmp_path / "bank") == [WordSenses("bank", uses, test)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("classes_map.txt", "[1]", "expected an object such as"),
        ("classes_map.txt", "{", "not JSON"),
        ("train.data.txt", "7\tthe bank\n2\the robbed banks\n", r"train\.data\.txt:1: expected the position of a word"),
        (
            "train.data.txt",
            f"{'9' * 5000}\tthe bank\n2\the robbed banks\n",
            r"train\.data\.txt:1: expected the position",
        ),
        ("train.data.txt", "the bank\n2\the robbed banks\n", r"train\.data\.txt:1: expected the position of a word"),
        ("train.data.txt", "1\tthe bank\n", r"train\.gold\.txt: more lines than train\.data\.txt"),
        ("train.gold.txt", "0\n", r"train\.data\.txt: more lines than train\.gold\.txt"),
        ("train.gold.txt", "0\n9\n", r"train\.gold\.txt:2: no sense '9' in classes_map\.txt"),
    ],
)
def test_invalid_files_of_a_folder_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    folder = word_folder(tmp_path / "bank")
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_senses(folder)


def test_missing_files_of_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no classes_map\.txt in this folder"):
        read_senses(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        read_senses(tmp_path / "nowhere")
    folder = word_folder(tmp_path / "bank")
    (folder / "test.gold.txt").unlink()
    with pytest.raises(DataError, match=r"test\.gold\.txt: no such file"):
        read_senses(folder)


PAIR = UsePair(WordUse(("a", "bank"), 1), WordUse(("the", "banks", "of", "it", "."), 1), True)
ROW = {"sentence1": "a bank", "start1": "2", "end1": "6", "sentence2": "the banks of it .", "start2": "4", "end2": "9"}


def test_pairs_of_uses_are_read_in_both_formats(tmp_path: Path) -> None:
    (tmp_path / "dev.data.txt").write_text("bank\tN\t1-1\ta bank\tthe banks of it .\n", encoding="utf-8")
    (tmp_path / "dev.gold.txt").write_text("T\n", encoding="utf-8")
    (tmp_path / "x.en-en.data.gz").write_bytes(gzip.compress(json.dumps([ROW]).encode()))
    (tmp_path / "x.en-en.gold").write_text('[{"id": 0, "tag": "T"}]', encoding="utf-8")
    assert read_use_pairs(tmp_path / "dev.data.txt") == [PAIR]
    assert read_use_pairs(tmp_path / "x.en-en.data.gz") == [PAIR]


@pytest.mark.parametrize(
    ("data", "gold", "message"),
    [
        (
            "bank\tN\t1-9\ta bank\tthe banks\n",
            "T\n",
            r"dev\.data:1: expected a word, its part of speech, two positions",
        ),
        ("bank\n", "T\n", r"dev\.data:1: expected a word, its part of speech, two positions"),
        ("bank\tN\t1-1\ta bank\tthe banks\n", "maybe\n", r"dev\.gold: answer 1: expected T or F, found 'maybe'"),
        ("bank\tN\t1-1\ta bank\tthe banks\n", "T\nF\n", r"dev\.data: 1 pairs, but dev\.gold has 2 answers"),
        ("", "", r"dev\.data: no pairs"),
        ("[1]", '[{"tag": "T"}]', r"expected sentence1, start1 and end1, found 1"),
        (json.dumps([ROW | {"end1": "99"}]), '[{"tag": "T"}]', "expected sentence1, start1 and end1"),
        (json.dumps([ROW]).replace('"6"', "1e999"), '[{"tag": "T"}]', "expected sentence1, start1 and end1"),
        (json.dumps([ROW]), "{}", r"dev\.gold: expected an array of objects"),
        (json.dumps([ROW]), "[{}]", r"dev\.gold.*expected T or F, found None"),
    ],
)
def test_invalid_pairs_are_refused(data: str, gold: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "dev.data").write_text(data, encoding="utf-8")
    (tmp_path / "dev.gold").write_text(gold, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_use_pairs(tmp_path / "dev.data")


def test_pairs_need_answers_beside_them(tmp_path: Path) -> None:
    (tmp_path / "dev.data").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"dev\.gold: no such file"):
        read_use_pairs(tmp_path / "dev.data")
    with pytest.raises(DataError, match=r"with \.data in its name"):
        read_use_pairs(tmp_path / "pairs.txt")
