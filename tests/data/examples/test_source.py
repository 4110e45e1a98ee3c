"""Several files read together, each with its own columns, and written back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ensue.data import lines
from ensue.data.decoding import MAX_CHARACTERS
from ensue.data.examples import DocumentLayout, DocumentSource, PairLayout, PairSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError
from ensue.notices import Notice
from forgetting import forget_notices

RUN = DocumentLayout("tsv", (Column(2, "text"),), Column(1, "label"), header=True)
PAIRS = DocumentLayout("tsv", (Column(1, "sentence1"), Column(2, "sentence2")), Column(3, "label"), header=True)
UNLABELED = DocumentChoice(is_labeled=False)


def folder(path: Path, *texts: str, suffix: str = ".tsv") -> Path:
    for number, text in enumerate(texts):
        (path / f"{number}{suffix}").write_bytes(text.encode())
    return path


def rewritten(source: DocumentSource) -> str:
    return "".join(source.write(document, ("NEW",)) for document in source) + source.rest


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("label\ttext\na\tone\n", "text\ntwo\n"), "label\ttext\nNEW\tone\ntext\tlabel\ntwo\tNEW\n"),
        (("text\none\n", "label\ttext\na\ttwo\n"), "text\tlabel\none\tNEW\nlabel\ttext\nNEW\ttwo\n"),
        (("label\ttext\na\tone", "text\tn\tlabel\ntwo\t7\tb"), "label\ttext\nNEW\tone\ntext\tn\tlabel\ntwo\t7\tNEW"),
        (("label\ttext\na\tone\n\n", "", "\n\nlabel\ttext\nb\ttwo\n \n"),
         "label\ttext\nNEW\tone\n\nNEW\ttwo\n \n"),
        (("label\ttext\n\n",), "label\ttext\n\n"),
        (("label\ttext\n", "label\ttext\nb\ttwo\n"), "label\ttext\nNEW\ttwo\n"),
    ],
)  # fmt: skip
def test_each_table_has_its_own_columns(texts: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    source = DocumentSource(folder(tmp_path, *texts), UNLABELED, like=RUN)
    assert rewritten(source) == expected
    assert rewritten(source) == expected


@pytest.mark.parametrize(
    ("texts", "suffix", "expected"),
    [
        (("label\ttext\na\tone", "label\ttext\nb\ttwo"), ".tsv", "label\ttext\nNEW\tone\nNEW\ttwo"),
        (("\ufefflabel;text\r\na;é é\r\n", "\ufefflabel;text\r\nb;two\r\n"), ".csv",
         "\ufefflabel;text\r\nNEW;é é\r\nNEW;two\r\n"),
        (('[\n {"label": "a", "text": "x"}\n]\n', '[{"label":"a","text":"y"}]'), ".json",
         '[\n {"label": "NEW", "text": "x"},{"label":"NEW","text":"y"}]'),
        (('[{"label":"a","text":"y"}]', '\ufeff[\n {"label": "a", "text": "x"}\n]\n'), ".json",
         '[{"label":"NEW","text":"y"},\n {"label": "NEW", "text": "x"}\n]\n'),
        (("label\ttext\na\tone\n", "text\ntwo\n"), ".tsv", None),
        (("label\ttext\na\tone\n", "text\tlabel\ntwo\ta\n"), ".tsv", None),
        (('[{"label":"a","text":"y"}]', '{"label":"a","text":"y"}'), ".json", None),
    ],
)  # fmt: skip
def test_several_files_are_joined(texts: tuple[str, ...], suffix: str, expected: str | None, tmp_path: Path) -> None:
    source = DocumentSource(folder(tmp_path, *texts, suffix=suffix), UNLABELED, like=RUN)

    def records() -> Iterator[str]:
        yield from (source.write(document, ("NEW",)) for document in source)
        yield source.rest

    if expected is None:
        with pytest.raises(DataError, match="predict the files one by one"):
            list(source.as_one(records()))
        return
    result = "".join(source.as_one(records()))
    assert result == expected
    (tmp_path / f"one{suffix}").write_bytes(result.encode())
    assert [document.labels for document in DocumentSource(tmp_path / f"one{suffix}", like=RUN)] == [("NEW",)] * 2


def test_pairs_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    files = folder(tmp_path, "sentence1\tsentence2\tlabel\na\tb\tx\n", "label\tsentence2\tsentence1\nx\tb\ta\n")
    assert [document.texts for document in DocumentSource(files, like=PAIRS)] == [("a", "b")] * 2
    folder(tmp_path, "sentence2\tsentence1\nb\ta\n")
    assert [document.texts for document in DocumentSource(files, UNLABELED, like=PAIRS)] == [("a", "b")] * 2


def test_later_files_of_training_data_are_read_like_the_first(tmp_path: Path) -> None:
    files = folder(tmp_path, "art\tsatz\nx\ta b c\ny\td e f\n", "satz\tart\nx y z\ty\n")
    source = DocumentSource(files, DocumentChoice(("satz",), "art"))
    assert [(document.labels, document.texts) for document in source][-1] == (("y",), ("x y z",))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("label\ttext\na\tone\n", "label\tn\na\t2\n"), r'1\.tsv:1: no "text"; there are "label", "n"'),
        (("label\ttext\na\tone\n", "two\n"), r'1\.tsv:1: no "text"; there are "two"'),
    ],
)
def test_a_file_without_a_column_is_refused_before_the_first_document(
    texts: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        DocumentSource(folder(tmp_path, *texts), UNLABELED, like=RUN)


def test_files_of_several_formats_are_refused(tmp_path: Path) -> None:
    folder(tmp_path, "label\ttext\na\tone\n")
    (tmp_path / "b.csv").write_text("label,text\na,one\n")
    with pytest.raises(DataError, match=r"b\.csv: looks like csv, but .*0\.tsv looks like tsv; select files"):
        DocumentSource(tmp_path, like=RUN)
    folder_of_sentences = tmp_path / "sentences"
    folder_of_sentences.mkdir()
    (folder_of_sentences / "a.conll").write_text("Ann NN O\n\nIt PRP O\n")
    (folder_of_sentences / "b.txt").write_text("Ann sees Lima\n")  # its last word would be replaced by a label
    with pytest.raises(DataError, match=r"b\.txt: looks like text, but .*a\.conll looks like columns"):
        SentenceSource(folder_of_sentences)
    assert len(list(SentenceSource(folder_of_sentences, format="columns"))) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"text": "a", "label": "x"}\n\n\n'), ("x.csv", 'label,text\nx,"a\n\nb"\n\n\n'),
        ("x.ft", "__label__x a\n\n"), ("x.txt", "x a\nx b\n\n"), ("x.tsv", "label\ttext\nx\ta\n\nx\tb\n\n \n"),
    ],
)  # fmt: skip
def test_empty_lines_at_the_end_are_written_back(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    source = DocumentSource(tmp_path / name, format="first-word" if name == "x.txt" else "")
    assert "".join(source.write(document, document.labels) for document in source) + source.rest == text


@pytest.mark.parametrize("text", ["\n\n", "-DOCSTART- O\n\n", "# newdoc\n\n# x\n", ""])
@pytest.mark.parametrize("format", ["columns", "conllu", "json", "text"])
def test_sentences_and_the_rest_make_up_the_file(text: str, format: str) -> None:
    for mark, of in (("-DOCSTART- O", "columns"), ("# newdoc", "conllu"), ("# x", "conllu")):
        text = text if format == of else text.replace(mark, "")
    source = SentenceSource(Lines([text], "stdin"), format=format)
    result = list(source)
    if format == "text":
        assert "".join(sentence.source.text for sentence in result) == text
    else:
        assert result == []
        assert source.rest == text


def test_a_file_without_sentences_is_written_back(tmp_path: Path) -> None:
    folder(tmp_path, "a O\nb O", "\n\n", "c O\n\n\n", "\n", suffix=".bio")
    source = SentenceSource(tmp_path)
    labels = (["X"] * len(sentence.words) for sentence in source)
    content = "".join(map(source.format.write, source, labels)) + source.rest
    assert content == "a X\nb X\n\n\n\nc X\n\n\n\n"


def test_first_words_are_labels_only_if_the_run_knows_them() -> None:
    run = DocumentLayout("first-word")
    for text, expected in (("the cat\nthe dog\nthe end\n", "plain"), ("x cat\ny dog\n", "first-word")):
        source = DocumentSource(Lines([text], "stdin"), UNLABELED, like=run, labels=["x", "y"])
        assert source.layout.format == expected


def test_a_key_of_the_run_is_written_where_objects_lack_it() -> None:
    """A value under another usual key of labels is not overwritten."""
    run = DocumentLayout("json", (Column(0, "text"),), Column(0, "mood"))
    source = DocumentSource(Lines(['{"text": "a", "label": "mine"}\n'], "x.jsonl"), UNLABELED, like=run)
    assert rewritten(source) == '{"text": "a", "label": "mine", "mood": "NEW"}\n'


def test_sentences_of_files_are_bounded_like_those_of_streams(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * (MAX_CHARACTERS + 1))
    with pytest.raises(DataError, match=r"a\.txt:1: a line of more than 16,777,216 characters"):
        list(SentenceSource(tmp_path / "a.txt"))


def test_several_blank_files_are_refused_with_one_line(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("\n \n")
    with pytest.raises(DataError, match=r"no text in any of 2 files; all are blank$"):
        DocumentSource(tmp_path)


RUN_OF_CSV = DocumentLayout("csv", (Column(2, "text"),), Column(1, "label"), header=True)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_of_any_delimiter_without_the_column_of_the_run_is_refused(delimiter: str, tmp_path: Path) -> None:
    table = f"Nr{delimiter}Nachricht{delimiter}Wann\n1{delimiter}a text of words{delimiter}now\n"
    files = folder(tmp_path, table, suffix=".tsv" if delimiter == "\t" else ".csv")
    for run in (RUN_OF_CSV, RUN):
        with pytest.raises(DataError, match='no "text"; there are "Nr", "Nachricht", "Wann"'):
            DocumentSource(files, UNLABELED, like=run)
    with pytest.raises(DataError, match='no "source"; there are "Nr", "Nachricht", "Wann"'):
        PairSource(files, like=PairLayout("csv", (Column(1, "source"),), (Column(2, "target"),), header=True))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_stream_with_the_columns_of_the_run_is_read_as_its_table(delimiter: str) -> None:
    text = f'n{delimiter}text{delimiter}label\n1{delimiter}"a, b; c"{delimiter}x\n'
    source = DocumentSource(Lines([text], "stdin"), UNLABELED, like=RUN_OF_CSV)
    assert [document.texts for document in source] == [('"a, b; c"' if delimiter == "\t" else "a, b; c",)]
    alone = DocumentSource(Lines(['text\n"a, ""b"""\n'], "stdin"), UNLABELED, like=RUN_OF_CSV)
    assert [document.texts for document in alone] == [('a, "b"',)]
    pairs = PairLayout("csv", (Column(1, "text"),), (Column(2, "label"),), header=True)
    sources = [pair.sources for pair in PairSource(Lines([text], "stdin"), like=pairs, is_labeled=False)]
    assert sources == [('"a, b; c"' if delimiter == "\t" else "a, b; c",)]


def test_lines_that_may_be_rows_are_read_as_texts_with_a_notice() -> None:
    forget_notices()
    with pytest.warns(Notice, match="stdin: read as plain text.*use format csv"):
        source = DocumentSource(Lines(["n;other\n1;a, b\n"], "stdin"), UNLABELED, like=RUN_OF_CSV)
    assert len(list(source)) == 2
    for texts in ("Hello, you\n", "Hello, you\nGood day\n"):
        assert DocumentSource(Lines([texts], "stdin"), UNLABELED, like=RUN_OF_CSV).layout.format == "plain"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("x.conll", "a O\nb O\n\nc O\n", SentenceSource),
        ("x.tsv", "label\ttext\nA\tone\n", DocumentSource),
        ("x.jsonl", '[{"source": "a", "target": "b"}]', PairSource),
    ],
)
def test_detection_and_the_first_reading_open_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, kind: type
) -> None:
    opened: list[Path] = []
    blocks = lines.text_blocks
    monkeypatch.setattr(
        lines, "text_blocks", lambda path, *args, **options: opened.append(path) or blocks(path, *args, **options)
    )
    path = tmp_path / name
    path.write_text(text)
    source = kind(path)
    if isinstance(source, SentenceSource):
        assert source.first() is not None
    result = list(source)
    assert result
    assert opened == [path]
    assert list(source) == result
    assert opened == [path, path]
