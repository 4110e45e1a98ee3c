"""Lines, running text, which format a file has, and folders of files."""

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.lines import Lines
from ensue.data.sentences.sentence import Sentence, Surface
from ensue.data.sentences.source import FORMATS, PlainText, SentenceSource, format_class
from ensue.errors import DataError, RecipeError

CONLLU = "# text = a\n1\ta" + "\t_" * 8 + "\n\n"
LABELED = CONLLU.replace("a\t_\t_", "a\t_\tX")


@given(st.lists(st.text(st.sampled_from("a\r\n\u2028\x85\x0b"), max_size=6), max_size=6), st.integers(0, 5))
def test_lines_are_cut_at_line_ends_in_any_chunks(chunks: list[str], count: int) -> None:
    text = "".join(chunks)
    *complete, rest = [f"{line}\n" for line in text.split("\n")]
    expected = [*complete, rest[:-1]] if rest != "\n" else complete
    lines = Lines(iter(chunks), "x")
    assert lines.head(count) == expected[:count]
    assert lines.head(count) == expected[:count]
    assert list(lines) == list(enumerate(expected, 1))


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        format_class("conlu")
    assert str(caught.value) == (
        'unknown format "conlu"; expected one of columns, conllu, json, conllu-text, text; did you mean "conllu"?'
    )
    assert all(format_class(name).name == name for name in FORMATS)


def test_running_text_is_read_and_written_line_by_line() -> None:
    text = "Ann didn't go.\r\n\n\u2028 x\x85 \nlast"
    format = PlainText(splitter="treebank")
    sentences = list(format.read(Lines([text], "x.txt")))
    assert [sentence.words for sentence in sentences] == [("Ann", "did", "n't", "go", "."), (), ("x",), ("last",)]
    assert [sentence.line for sentence in sentences] == [1, 2, 3, 4]
    assert format.surface(sentences[0]) == ("Ann didn't go.", ((0, 3), (4, 7), (7, 10), (11, 13), (13, 14)))
    assert format.write(sentences[3], ["a b"]) == "last\ta b\n\n"
    assert format.write(sentences[1], []) == "\n"
    with pytest.raises(DataError, match=r"^x\.txt:4: the label 'a\\n' cannot be written"):
        format.write(sentences[3], ["a\n"])
    with pytest.raises(RecipeError, match='unknown splitter "tree"'):
        list(PlainText(splitter="tree").read(Lines(["a"], "x.txt")))


@given(st.lists(st.text(max_size=3), max_size=5), st.data())
def test_words_are_joined_with_blanks(words: list[str], data: st.DataObject) -> None:
    blanks = [data.draw(st.booleans()) for _ in words]
    text, offsets = Surface.of(words, blanks)
    assert [text[start:end] for start, end in offsets] == words
    pieces = [word + " " * blank for word, blank in zip(words[:-1], blanks, strict=False)]
    assert text == "".join([*pieces, *words[-1:]])
    assert Surface.of(words).text == " ".join(words)


def test_sentences_of_words_alone_have_no_columns() -> None:
    sentence = Sentence(("Ann", "left"))
    assert sentence == Sentence(("Ann", "left"))
    with pytest.raises(DataError, match=r'^no "upos"'):
        sentence.column("upos")


@pytest.mark.parametrize("name", ["b.txt", "b.txt.xz", "b.txt.gz"])
def test_the_kinds_and_formats_of_folders_are_detected(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.bio").write_text("a A\nb B")
    data = "ü C\nd D\n\n# E\n".encode("latin-1")
    packed = {".xz": lzma.compress, ".gz": gzip.compress}.get(Path(name).suffix, bytes)(data)
    (tmp_path / name).write_bytes(packed)
    (tmp_path / "c.bio").write_text("\nf F\n")
    source = SentenceSource(tmp_path, encoding="latin-1")
    assert source.format.name == "columns"
    for _ in range(2):
        sentences = list(source)
        assert [sentence.words for sentence in sentences] == [("a", "b"), ("ü", "d"), ("#",), ("f",)]
        assert [(Path(sentence.source.name).name, sentence.line) for sentence in sentences] == [
            ("a.bio", 1), (name, 1), (name, 4), ("c.bio", 2),
        ]  # fmt: skip
    output = "".join(source.format.write(sentence, ["X"] * len(sentence.words)) for sentence in sentences)
    assert output == "a X\nb X\n\nü X\nd X\n\n# X\n\n\nf X\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            ['{"tokens": []}', '{"tokens": ["a"]}\n'],
            '{"tokens": [], "labels": []}\n{"tokens": ["a"], "labels": ["X"]}\n',
        ),
        (["a\n\nb", "c\nd"], "a\tX\n\n\nb\tX\n\nc\tX\n\nd\tX\n\n"),
        ([CONLLU[:-2], f"{CONLLU}# x", CONLLU], f"{LABELED}{LABELED}# x\n\n{LABELED}"),
    ],
)
def test_files_without_a_last_line_end_are_written_in_order(tmp_path: Path, texts: list[str], expected: str) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    source = SentenceSource(str(tmp_path / "*.txt"), format="text" if texts[0][0] == "a" else None)
    output = "".join(source.format.write(sentence, ["X"] * len(sentence.words)) for sentence in source)
    assert output == expected


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.conllu").write_text(CONLLU)
    with pytest.raises(DataError, match=r'no such file or folder; did you mean "train\.conllu"\?'):
        SentenceSource(tmp_path / "trian.conllu")
    with pytest.raises(DataError, match=r'train\.conllu: no "wrods"; there are "form"'):
        list(SentenceSource(tmp_path / "train.conllu", words="wrods"))
