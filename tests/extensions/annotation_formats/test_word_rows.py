"""Tables with a word in each row: the number of the sentence in each row or in the first, in several encodings."""

import lzma
from pathlib import Path

import pytest

from ensue.data.detection.kind import detect
from ensue.data.sentences.source import SentenceSource

ROWS = [("Ann", "NNP", "B-PER"), ("left", "VBD", "O"), ('", "', ",", "O"), ("Graz", "NNP", "B-LOC")]
TABLES = {
    "each": "sentence_id,word,tag\n" + "".join(f"{n},{word},{tag}\n" for n in range(40) for word, _, tag in ROWS),
    "first": "Sentence #,Word,POS,Tag\n"
    + "".join(
        f"{f'Sentence: {n}' if k == 0 else ''},{word},{pos if pos != ',' else 'PUNCT'},{tag}\n"
        for n in range(40)
        for k, (word, pos, tag) in enumerate(ROWS)
    ),
    **{
        header: header + "\n" + "".join(f"{n},{word},{tag}\n" for n in range(40) for word, _, tag in ROWS)
        for header in ("satz_id,wort,etikett", "zdanie nr,słowo,etykieta", "Zin,Woord,Label", "文id,単語,ラベル")
    },
    "semicolons": "Sent_ID;Token;NER\n" + "".join(f"{n};{word};{tag}\n" for n in range(40) for word, _, tag in ROWS),
}


@pytest.mark.parametrize("form", ["plain", "mark", "utf-16", "crlf", "xz"])
@pytest.mark.parametrize("name", TABLES)
def test_sentences_are_read_from_tables_with_a_word_in_each_row(name: str, form: str, tmp_path: Path) -> None:
    table = TABLES[name].replace("\n", "\r\n") if form == "crlf" else TABLES[name]
    encoding = {"mark": "utf-8-sig", "utf-16": "utf-16"}.get(form, "utf-8")
    path = tmp_path / ("x.csv.xz" if form == "xz" else "x.csv")
    path.write_bytes(lzma.compress(table.encode()) if form == "xz" else table.encode(encoding))
    encoding = "utf-16" if form == "utf-16" else "utf-8"
    assert detect(path, encoding=encoding).kind == "sentences"
    sentences = list(SentenceSource(path, encoding=encoding))
    assert len(sentences) == 40
    assert {(sentence.words, sentence.column("labels")) for sentence in sentences} == {
        (("Ann", "left", ",", "Graz"), ("B-PER", "O", "O", "B-LOC"))
    }


@pytest.mark.parametrize("header", ["sentence,word,label", "id,word,tag", "sentence_id,text,label"])
def test_tables_with_texts_in_the_rows_are_read_as_texts(header: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n" + "".join(f"the long word {n},word,{n % 2}\n" for n in range(40)))
    assert detect(path).kind == "texts"


def test_a_line_separator_in_a_cell_is_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sentence_id,word,tag\n" + "".join(f"{n},a\u2028b,O\n" for n in range(3)), encoding="utf-8")
    assert len(list(SentenceSource(path))) == 3
