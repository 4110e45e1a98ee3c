"""Detection of the formats of labeled sentences, labeled texts and pairs."""

import pytest

from ensue.data.detection import format_table
from ensue.data.examples.formats import DOCUMENT_FORMATS, PAIR_FORMATS
from ensue.data.lines import Lines
from ensue.data.sentences import source

CONLLU = "# text = a\n1\ta" + "\t_" * 8 + "\n\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.conllu", "", "conllu"), ("x.CONLLU.xz", "anything", "conllu"), ("x.jsonl", "", "json"),
        ("x.json.gz", "", "json"), ("x.conll", "a O\n", "columns"), ("x.conll", CONLLU, "conllu"),
        ("x.bmes", "a\n", "columns"), ("stdin", CONLLU, "conllu"),
        ("stdin", CONLLU.replace("\n1\t", "\n1-2\ta" + "\t_" * 8 + "\n1\t"), "conllu"),
        ("x.txt", '\n {"tokens": []}\n', "json"), ("x.txt", "a NN O\nb NN O\n\nc NN O\n", "columns"),
        ("x.txt", "a O\n\nb O\nc O\n", "columns"), ("x.tsv", "a b\tO\nc\tO\n", "columns"),
        ("x.txt", "a\nb\n\nc\n", "columns"), ("x.txt", "-DOCSTART- O\n\nb O\n", "columns"),
        ("x.txt", "a O\n" * 200, "columns"), ("x.txt", "Janet will back the bill\nShe did\n", "text"),
        ("x.txt", "Janet will back the bill\n", "text"), ("x.txt", "Janet\n\nBill\n\n", "text"),
        ("x.txt", "two words\nand more\n", "text"), ("x.txt", "", "text"), ("x", "\n\n", "text"),
    ],
)  # fmt: skip
def test_formats_of_sentences_are_detected(name: str, text: str, expected: str) -> None:
    lines = Lines([text], name)
    assert format_table.sentence_format(lines) == expected
    assert "".join(line for _, line in lines) == text


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.tsv", "a", "tsv"), ("x.CSV.xz", "a", "csv"), ("x.jsonl.gz", "a", "json"), ("x.ft", "a", "fasttext"),
        ("x.txt", '\n {"a": 1}', "json"), ("stsa.train", "1 a b\n0 c d\n1 e\n", "first-word"),
        ("x", "__label__1 a b\n", "fasttext"), ("x", "a b __label__1\n", "fasttext"), ("x", "a\tb\n\nc\td\n", "tsv"),
        ("x", "a\tb\nc d\n", ""), ("x", "the day\nof all\ndays\n", ""), ("x", "", ""),
    ],
)  # fmt: skip
def test_formats_of_texts_are_detected(name: str, text: str, expected: str) -> None:
    assert format_table.text_format(Lines([text], name), is_labeled=True) == expected


def test_every_name_has_a_reader() -> None:
    names = {
        kind: {known.name for known in format_table.FORMAT_TABLE if kind in known.kinds}
        for kind in (format_table.SENTENCES, format_table.TEXTS, format_table.PAIRS)
    }
    cutters = {"conllu-text"}  # a recipe names it, and detection never returns it
    assert set(source.FORMATS) == names[format_table.SENTENCES] | cutters
    assert {name: source.format_class(name).name for name in source.FORMATS} == {name: name for name in source.FORMATS}
    assert {*DOCUMENT_FORMATS, format_table.FOLDERS} == names[format_table.TEXTS]
    assert {*PAIR_FORMATS, format_table.ALIGNED} == names[format_table.PAIRS]
