"""Tables with tabs and quotes, as Excel saves text files; in other tables with tabs, quotes are ordinary characters."""

from pathlib import Path

import pytest

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.lines import Lines
from ensue.notices import Notice

EXPORT = (
    "Nr\tText\tKategorie\r\n"
    '1\t"The lift, again.\n\nAnna"\tlift\r\n'
    '2\t"The ""new"" lift stops."\tlift\r\n'
    "3\tThe rent is wrong.\trent\r\n"
    "\t\t\r\n"
)
TEXTS = ["The lift, again.\n\nAnna", 'The "new" lift stops.', "The rent is wrong."]
UNQUOTED = {
    "a quote that is not closed": 'a\t"It rains.\nb\tI see.\nb\tNo.\n',
    "two quotes that are not closed": 'a\t"It rains.\nb\tI see.\nb\t"No.\n',
    "a quote that closes some rows later": 'a\t"It rains.\nb\tI see.\nb\tNo."\n',
    "a quotation": 'a\t"It rains."\nb\tI see.\nb\tNo.\n',
    "a word in quotes": 'a\t"Rain" falls.\nb\tI ""see"".\nb\tNo.\n',
}


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_text_file_of_excel_is_read_as_a_table(name: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(EXPORT.encode(encoding))
    detected = detect(tmp_path / name, encoding=encoding)
    assert (detected.kind, detected.format, detected.is_default) == ("texts", "csv-tab", True)
    source = DocumentSource(tmp_path / name, encoding=encoding, incomplete="skip")
    with pytest.warns(Notice, match="a.[a-z]+:7: the first row that .* leaves out; in total 1 row: 1 without a label"):
        documents = list(source)
    assert [document.texts[0] for document in documents] == TEXTS
    assert [document.labels[0] for document in documents] == ["lift", "lift", "rent"]


def test_a_text_file_of_excel_is_written_back() -> None:
    source = DocumentSource(Lines([EXPORT.replace("\t\t\r\n", "")], "a.txt"))
    text = "".join(source.write(document, ["a\tb"]) for document in list(source)) + source.rest
    assert text == EXPORT.replace("\t\t\r\n", "").replace("\tlift\r", '\t"a\tb"\r').replace("\trent\r", '\t"a\tb"\r')


@pytest.mark.parametrize("rows", UNQUOTED.values(), ids=UNQUOTED)
def test_quotes_of_other_tables_are_read_as_characters(rows: str) -> None:
    source = DocumentSource(Lines([rows], "a.tsv"))
    assert source.layout.format == "tsv"
    assert [document.texts[0] for document in source] == [row.split("\t")[1] for row in rows.splitlines()]


def test_pairs_of_excel_are_read() -> None:
    text = 'Texte français\tTexte espagnol\r\n"Il dit ""oui""."\tDice que sí.\r\nNon.\tNo.\r\n'
    source = PairSource(Lines([text], "a.txt"))
    assert [pair[:2] for pair in source] == [(('Il dit "oui".',), ("Dice que sí.",)), (("Non.",), ("No.",))]


@pytest.mark.parametrize(
    ("header", "is_header"),
    [
        ("Texte français;Texte espagnol", True), ("Deutsch;Englisch", True), ("source (German);target (English)", True),
        ("Text;Übersetzung", False), ("is_old;no_text", False),
    ],
)  # fmt: skip
def test_names_of_languages_are_detected_as_headers(header: str, is_header: bool) -> None:
    source = PairSource(Lines([f"{header}\nIl pleut ici.;Llueve aquí.\nJe vois.;Ya veo.\n"], "a.csv"))
    assert len(list(source)) == (2 if is_header else 3)
