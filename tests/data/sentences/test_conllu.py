"""CoNLL-U: words, multiword tokens, keys, and writing of one column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.lines import Lines
from ensue.data.sentences import conllu
from ensue.data.sentences.conllu import COLUMN_NAMES, Conllu
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError

FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), min_size=1, max_size=6)
PLACES = {name: place for place, name in enumerate(COLUMN_NAMES, 1)}
SAMPLE = """\
# newdoc id = one
# sent_id = 1
# text = Vamos al mar, ¿no?
1-2	Vámonos	_	_	_	_	_	_	_	_
1	Vamos	ir	VERB	v	Mood=Imp|Number=Plur	0	root	0:root	_
2	nos	nosotros	PRON	p	Case=Acc|Number=Plur	1	obj	1:obj	_
3-4	al	_	_	_	_	_	_	_	_
3	a	a	ADP	s	_	5	case	5:case	_
4	el	el	DET	d	Number=Sing	5	det	5:det	_
5	mar	mar	NOUN	n	Number=Sing	1	obl	1:obl	NER=B-LOC|SpaceAfter=No
5.1	ir	ir	VERB	v	_	_	_	1:conj	_
5.2	ahí	ahí	ADV	r	_	_	_	5.1:advmod	_
6	,	,	PUNCT	f	_	1	punct	1:punct	_


# newdoc
# sent_id = 2
0.1	x	_	_	_	_	_	_	_	_
1	¿	¿	PUNCT	f	_	2	punct	2:punct	SpaceAfter=No|Key
2	no	no	INTJ	r	_	0	root	0:root	SpaceAfter=No
3	?	?	PUNCT	f	_	2	punct	2:punct	_

# the end
"""


def read(text: str, words: str | None = None) -> list[Sentence]:
    return list(Conllu(words=words).read(Lines([text], "x.conllu")))


def row(id: str, form: str = "a") -> str:
    return "\t".join([id, form, *"_" * 8]) + "\n"


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[list[list[str]]]]:
    """Draw a file's text, and its sentences as rows of fields of words."""
    text, expected = "", []
    end = draw(st.sampled_from(["\n", "\r\n"]))
    for _ in range(draw(st.integers(1, 3))):
        text += "".join("#" + comment + end for comment in draw(st.lists(FIELD, max_size=2)))
        words: list[list[str]] = []
        open_range = 0
        count = draw(st.integers(1, 4))
        for number in range(1, count + 1):
            if number > open_range and number < count and draw(st.booleans()):
                open_range = draw(st.integers(number + 1, count))
                text += "\t".join([f"{number}-{open_range}", *draw(st.lists(FIELD, min_size=9, max_size=9))]) + end
            words.append([str(number), *draw(st.lists(FIELD, min_size=9, max_size=9))])
            text += "\t".join(words[-1]) + end
            for empty in range(1, draw(st.integers(1, 3))):
                text += "\t".join([f"{number}.{empty}", *draw(st.lists(FIELD, min_size=9, max_size=9))]) + end
        text += end * draw(st.integers(1, 2))
        expected.append(words)
    return text, expected


@given(files(), st.sampled_from(COLUMN_NAMES), st.data())
def test_every_column_round_trips(file: tuple[str, list[list[list[str]]]], name: str, data: st.DataObject) -> None:
    text, expected = file
    column = PLACES[name]
    sentences = read(text)
    assert [list(sentence.words) for sentence in sentences] == [[word[1] for word in words] for words in expected]
    columns = [list(sentence.column(name)) for sentence in sentences]
    assert columns == [[word[column] for word in words] for words in expected]
    pairs = zip(sentences, columns, strict=True)
    assert "".join(Conllu().write(sentence, column, name) for sentence, column in pairs) == text

    new = [[data.draw(FIELD) for _ in column] for column in columns]
    pairs = zip(sentences, new, strict=True)
    output = "".join(Conllu().write(sentence, column, name) for sentence, column in pairs)
    assert [list(sentence.column(name)) for sentence in read(output)] == new
    before, after = ([line.split("\t") for line in content.split("\n")] for content in (text, output))
    for old_fields, new_fields in zip(before, after, strict=True):
        if old_fields[0].isdecimal():
            old_fields[column] = new_fields[column]
    assert before == after


def test_multiword_tokens_and_empty_nodes_are_not_words() -> None:
    first, second = read(SAMPLE)
    assert first.words == ("Vamos", "nos", "a", "el", "mar", ",")
    assert second.words == ("¿", "no", "?")
    assert (first.line, first.document, second.line, second.document) == (4, 0, 18, 1)
    assert first.source.text + second.source.text == SAMPLE
    assert read(SAMPLE, words="lemma")[0].words[:2] == ("ir", "nosotros")


def test_keys_of_features_are_columns() -> None:
    first, second = read(SAMPLE)
    assert first.column("misc.NER") == ("_", "_", "_", "_", "B-LOC", "_")
    assert first.column("feats.Number") == ("Plur", "Plur", "_", "Sing", "Sing", "_")
    assert [name for name in first.columns if "." in name] == [
        "feats.Case", "feats.Mood", "feats.Number", "misc.NER", "misc.SpaceAfter",
    ]  # fmt: skip
    assert second.column("feats.Number") == ("_", "_", "_")


@pytest.mark.parametrize(
    ("column", "label", "place", "before", "after"),
    [
        ("misc.NER", "O", 9, "_", "NER=O"),
        ("misc.NER", "O", 9, "SpaceAfter=No|Key", "SpaceAfter=No|Key|NER=O"),
        ("misc.NER", "B", 9, "NER=O|SpaceAfter=No", "NER=B|SpaceAfter=No"),
        ("misc.NER", "_", 9, "NER=O|SpaceAfter=No", "SpaceAfter=No"),
        ("misc.NER", "_", 9, "NER=O", "_"),
        ("misc.NER", "_", 9, "XNER=O", "XNER=O"),
        ("feats.Gender", "Fem", 5, "Case=Acc|Number=Sing", "Case=Acc|Gender=Fem|Number=Sing"),
        ("feats.Case", "Nom", 5, "Number=Sing|Case=Acc", "Number=Sing|Case=Nom"),
        ("feats", "Case=Nom|Number=Sing", 5, "_", "Case=Nom|Number=Sing"),
        (None, "VERB", 3, "NOUN", "VERB"),
    ],
)
def test_one_value_is_written(column: str | None, label: str, place: int, before: str, after: str) -> None:
    fields = row("1").split("\t")
    text, expected = (
        "# x\n1-1\ta" + "\t_" * 8 + "\n" + "\t".join([*fields[:place], value, *fields[place + 1 :]]).rstrip() + "\r\n"
        for value in (before, after)
    )
    (sentence,) = read(text)
    assert Conllu().write(sentence, [label], column) == expected


def test_the_surface_has_multiword_tokens_and_blanks() -> None:
    first, second = read(SAMPLE)
    surface = Conllu().surface(first)
    assert surface.text == "Vámonos al mar,"
    assert surface.offsets == ((0, 7), (0, 7), (8, 10), (8, 10), (11, 14), (14, 15))
    assert Conllu().surface(second).text == "¿no?"
    text = row("1-2", "don't").replace("_\n", "SpaceAfter=No\n") + row("1", "do") + row("2", "n't") + row("3", "!")
    assert Conllu().surface(read(text)[0]) == ("don't!", ((0, 2), (2, 5), (5, 6)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# c\n1\ta\n", "x.conllu:2: expected 10 columns separated by tabs, found 2"),
        (row("1").replace("\t", " "), "x.conllu:1: expected 10 columns separated by tabs, found 1"),
        (row("1").strip() + "\t_\n", "x.conllu:1: expected 10 columns separated by tabs, found 11"),
        (row("1", ""), "x.conllu:1: the form (column 2) is empty"),
        (row("1") + row("3"), 'x.conllu:2: expected id 2, a range from it or 1.1, found "3"'),
        (row("2"), 'x.conllu:1: expected id 1, a range from it or 0.1, found "2"'),
        (row("01"), 'x.conllu:1: expected id 1, a range from it or 0.1, found "01"'),
        (row("1") + row("1.2"), 'x.conllu:2: expected id 2, a range from it or 1.1, found "1.2"'),
        (row("1") + row("2-1"), 'x.conllu:2: expected id 2, a range from it or 1.1, found "2-1"'),
        (row("1-3") + row("1") + row("2-3"), 'x.conllu:3: expected id 2, a range from it or 1.1, found "2-3"'),
        (row("1-" + "9" * 5000), None),
        (row("1-3") + row("1"), "x.conllu:1: a range of words up to 3 in a sentence of 1"),
        (row("1-2"), "x.conllu:1: a sentence without words"),
        (row("1") + row("x"), 'x.conllu:2: expected id 2, a range from it or 1.1, found "x"'),
    ],
)
def test_wrong_rows_are_refused(text: str, message: str | None) -> None:
    with pytest.raises(DataError) as caught:
        read(text)
    assert message is None or str(caught.value) == message


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("upso", 'x.conllu:4: no "upso"; did you mean "upos"?'),
        ("feats.", r'x.conllu:4: no "feats."; did you mean "feats"?'),
        ("upos.x", r'x.conllu:4: no "upos.x"; did you mean "upos"?'),
    ],
)
def test_a_missing_column_is_refused(column: str, message: str) -> None:
    sentence = read(SAMPLE)[0]
    with pytest.raises(DataError) as caught:
        sentence.column(column)
    assert str(caught.value) == message
    with pytest.raises(DataError) as caught:
        Conllu().write(sentence, ["X"] * 6, column)
    assert str(caught.value) == message
    with pytest.raises(DataError, match=r'^x\.conllu: no "frm"; did you mean "form"\? .*"data.words"'):
        read(SAMPLE, words="frm")


@pytest.mark.parametrize(("column", "label"), [("upos", "a\tb"), ("upos", ""), ("misc.NER", "a|b"), ("xpos", "\n")])
def test_labels_that_break_the_line_are_refused(column: str, label: str) -> None:
    (sentence,) = read(row("1"))
    with pytest.raises(DataError, match=r"^x\.conllu:1: the label .* cannot be written in this format: it "):
        Conllu().write(sentence, [label], column)


def test_a_block_without_words_is_skipped() -> None:
    assert read("") == read("# newdoc\n\n\n") == []
    (sentence,) = read("# a\n\n# b\n" + row("1") + "\n# c\n")
    assert sentence.source.text == "# a\n\n# b\n" + row("1") + "\n# c\n"


@pytest.mark.parametrize(
    ("comment", "opens"),
    [
        ("# newdoc", True), ("#newdoc", True), ("# newdoc id = x", True), ("#newdoc\tid = x\r", True),
        ("# newdocument", False), ("# newdocs", False), ("# x newdoc", False), ("# newdoc_id = 3", False),
    ],
)  # fmt: skip
def test_comments_begin_documents(comment: str, opens: bool) -> None:
    sentences = read(f"{row('1')}\n{comment}\n{row('1')}\n")
    assert [sentence.document for sentence in sentences] == [0, int(opens)]


def test_a_row_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    fields = conllu._fields
    monkeypatch.setattr(conllu, "_fields", lambda row: (parsed.append(row), fields(row))[1])
    rows = [f"{n}\tw{n}" + "\t_" * 8 + "\n" for n in (1, 2)]
    (sentence,) = Conllu().read(Lines(rows, "x"))
    assert [sentence.column(name) for name in ("form", "upos", "feats.Case")] == [("w1", "w2"), ("_", "_"), ("_", "_")]
    assert parsed == rows
