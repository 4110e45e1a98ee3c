"""JSON: tokens with labels, texts with spans, and output in which only labels or spans are changed."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ensue.data.lines import Lines
from ensue.data.records.json_objects import LABEL_KEYS, SPAN_KEYS, TOKEN_KEYS
from ensue.data.sentences.json_sentences import HIDDEN, JsonSentences
from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError
from ensue.text.schemes import Span
from ensue.text.tokens import SPLITTERS

WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
KEY = WORD.filter(lambda key: key not in (*TOKEN_KEYS, *LABEL_KEYS))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
STYLES = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,  ", " :\t")])}
)


def read(text: str, **options: Any) -> list[Sentence]:
    return list(JsonSentences(**options).read(Lines([text], "x.jsonl")))


def line(**record: Any) -> str:
    return json.dumps(record) + "\n"


@given(
    st.lists(
        st.tuples(st.lists(WORD, max_size=4), st.dictionaries(KEY, VALUES, max_size=3), st.integers(0, 3)), max_size=4
    ),
    STYLES,
    st.data(),
)
def test_tokens_round_trip(
    records: list[tuple[list[str], dict[str, Any], int]], style: Any, data: st.DataObject
) -> None:
    blank = data.draw(st.sampled_from(["", "\n", " \n\r\n"]))
    lines = []
    for words, other_values, position in records:
        members = [*other_values.items()]
        members.insert(position, ("tokens", words))
        lines.append(json.dumps(dict(members), **style) + "\n" + blank)
    text = blank + "".join(lines)
    sentences = read(text)
    assert [list(sentence.words) for sentence in sentences] == [words for words, _, _ in records]
    assert "".join(sentence.source.text for sentence in sentences) == (text if records else "")
    for sentence in sentences:
        labels = [data.draw(WORD) for _ in sentence.words]
        before = sentence.source.text
        after = JsonSentences().write(sentence, labels, "my labels")
        assert list(json.loads(after).items()) == [*json.loads(before).items(), ("my labels", labels)]
        assert after.startswith(before[: before.rindex("}")].rstrip(" \t"))
        (read_back,) = read(after)
        assert read_back.column("my labels") == tuple(labels)
        assert JsonSentences().write(read_back, labels, "my labels") == after


def test_only_the_value_of_labels_is_replaced() -> None:
    tokens = '["Ann", "l\\u00e9ft \\ud83d\\ude00"]'
    text = '\n {"id":1e5 ,"tokens" : ' + tokens + ',"labels":[ "O","O"] , "n": {"labels": 1.50}}\r\n\n'
    (sentence,) = read(text)
    assert (sentence.words, sentence.line) == (("Ann", "léft 😀"), 2)
    assert JsonSentences().labels(sentence) == ("O", "O")
    assert JsonSentences().write(sentence, ["O", "O"]) == text
    assert JsonSentences().write(sentence, ["B-é", "O"]) == text.replace('[ "O","O"]', '["B-\\u00e9","O"]')
    raw = text.replace("\\u00e9", "é")
    assert JsonSentences().write(read(raw)[0], ["B-é", "O"]) == raw.replace('[ "O","O"]', '["B-é","O"]')
    added = JsonSentences().write(sentence, ["A", "B"], "new")
    assert added == text.replace("1.50}}", '1.50},"new":["A","B"]}')


def test_labels_are_written_under_their_key() -> None:
    (sentence,) = read(line(words=["a"], ner_tags=["O"], pos_tags=["X"]))
    assert JsonSentences().labels(sentence) == ("O",)
    assert JsonSentences().labels(sentence, "pos_tags") == ("X",)
    assert json.loads(JsonSentences().write(sentence, ["B-X"]))["ner_tags"] == ["B-X"]
    assert JsonSentences().write(read('{"tokens": ["a"]}')[0], ["O"]) == '{"tokens": ["a"], "labels": ["O"]}'
    news = '{"tokens": ["a"], "labels": "news", "tags": ["O"]}'
    assert JsonSentences().write(read(news)[0], ["X"]) == news.replace('["O"]', '["X"]')
    assert JsonSentences().write(read('{"tokens":[]}\n')[0], []) == '{"tokens":[],"labels":[]}\n'


def test_whole_numbers_stay_whole_numbers() -> None:
    (numbers,) = read('{"tokens": ["a", "b"], "ner_tags": [0, 3]}')
    assert numbers.column("ner_tags") == ("0", "3")
    assert JsonSentences().write(numbers, ["0", "3"]) == numbers.source.text
    assert JsonSentences().write(numbers, ["12", "3"]) == '{"tokens": ["a", "b"], "ner_tags": [12, 3]}'
    assert JsonSentences().write(numbers, ["B-X", "3"]) == '{"tokens": ["a", "b"], "ner_tags": ["B-X", "3"]}'
    (strings,) = read('{"tokens": ["a"], "ner_tags": ["0"]}')
    assert JsonSentences().write(strings, ["3"]) == '{"tokens": ["a"], "ner_tags": ["3"]}'


def test_empty_sentences_stay_in_order() -> None:
    sentences = read(line(tokens=["a"]) + line(tokens=[]) + line(text="") + line(tokens=["b"]))
    assert [sentence.words for sentence in sentences] == [("a",), (), (), ("b",)]
    assert [sentence.line for sentence in sentences] == [1, 2, 3, 4]


def test_labels_are_read_where_they_are_written() -> None:
    for record in (
        {"text": "a", "spans": [[0, 1, "X"]], "labels": [[0, 1, "Y"]]},
        {"tokens": ["a"], "pos_tags": ["P"], "tags": ["T"]},
        {"text": "a"},
    ):
        after = JsonSentences().write(read(line(**record))[0], ["B-Z"])
        assert JsonSentences().labels(read(after)[0]) == ("B-Z",)


def test_only_line_ends_end_a_line() -> None:
    words = ["a\u2028b", "\x85", "\x1d\x0b"]
    text = json.dumps({"tokens": words[:2]}, ensure_ascii=False) + "\r\n" + line(tokens=words[2:])
    assert [list(sentence.words) for sentence in read(text)] == [words[:2], words[2:]]


def test_words_under_another_key_are_read() -> None:
    record = line(tokens=["a"], text="b c", form=["d"])
    assert read(record)[0].words == ("a",)
    assert read(record, words="text")[0].words == ("b", "c")
    assert read(record, words="form")[0].words == ("d",)
    prodigy = line(text="Ann left", tokens=[{"text": "Ann", "start": 0, "end": 3, "id": 0}], spans=[])
    assert read(prodigy)[0].words == ("Ann", "left")


SPANS = [{"start": 0, "end": 3, "label": "PER", "id": 7}, {"start": 12, "end": 18, "label": "LOC"}]


def test_spans_round_trip_as_labels() -> None:
    text = line(id=1, text="Ann went to Berlin, too", spans=SPANS, z=None)
    (sentence,) = read(text)
    assert sentence.words == ("Ann", "went", "to", "Berlin", ",", "too")
    assert JsonSentences().labels(sentence) == ("B-PER", "O", "O", "B-LOC", "O", "O")
    assert read(text, scheme="iobes")[0].column("spans") == ("S-PER", "O", "O", "S-LOC", "O", "O")
    assert JsonSentences().surface(sentence).offsets == ((0, 3), (4, 8), (9, 11), (12, 18), (18, 19), (20, 23))
    assert JsonSentences().write(sentence, sentence.column("spans")) == text
    new = json.loads(JsonSentences().write(sentence, ["O", "O", "O", "S-ORG", "B-LOC", "E-LOC"]))
    spans = [{"start": 12, "end": 18, "label": "ORG"}, {"start": 18, "end": 23, "label": "LOC"}]
    assert list(new.items()) == [*{**json.loads(text), "spans": spans}.items()]


def test_spans_do_not_change_the_words() -> None:
    """A span that ends inside a word covers the words that it touches. A hidden span is written back."""
    spans = [[0, 3, "PER"], [12, 18, "LOC"], [19, 24, "ORG"], [26, 29, "X"]]
    text = line(text="Ann went to Berlin-Mitte. Off", spans=spans)
    (sentence,) = read(text)
    assert sentence.words == ("Ann", "went", "to", "Berlin-Mitte", ".", "Off")
    labels = JsonSentences().labels(sentence)
    assert labels == ("B-PER", "O", "O", "B-LOC", "O", "B-X")
    assert JsonSentences().misaligned(sentence) == (Span("LOC", 3, 4), Span("ORG", HIDDEN, HIDDEN))
    assert JsonSentences().write_keeping_spans(sentence, labels) == text
    changed = JsonSentences().write_keeping_spans(sentence, ["O", *labels[1:]])
    assert json.loads(changed)["spans"] == spans[1:], "other spans keep their borders"
    renamed = JsonSentences().write_keeping_spans(sentence, ["B-PER", "O", "O", "B-X", "O", "B-X"])
    assert json.loads(renamed)["spans"][1] == [12, 18, "X"], "a relabeled span keeps its borders"
    output = JsonSentences().write(sentence, labels)
    assert json.loads(output)["spans"] == [[0, 3, "PER"], [12, 24, "LOC"], [26, 29, "X"]]


def test_an_aligned_span_of_a_word_is_learned_before_others() -> None:
    text = line(text="ab cd", spans=[[0, 1, "X"], [1, 2, "Y"], [3, 5, "Z"]])
    assert JsonSentences().labels(read(text)[0]) == ("B-X", "B-Z")
    nested = line(text="ab cd", spans=[[0, 1, "X"], [0, 2, "X"], [0, 4, "Z"]])
    (sentence,) = read(nested, nested=True)
    assert JsonSentences(nested=True).labels(sentence) == ("B-X|B-Z", "I-Z")
    assert JsonSentences(nested=True).misaligned(sentence) == (Span("X", HIDDEN, HIDDEN), Span("Z", 0, 2))


@pytest.mark.parametrize("key", ["label", "labels", "entities", "my own"])
def test_spans_can_be_lists(key: str) -> None:
    text = line(text="Ann left", **{key: [[0, 3, "PER"]]})
    (sentence,) = read(text)
    assert JsonSentences().labels(sentence, key) == ("B-PER", "O")
    assert JsonSentences().write(sentence, ["O", "B-X"], key) == line(text="Ann left", **{key: [[4, 8, "X"]]})


@pytest.mark.parametrize("key", SPAN_KEYS)
def test_spans_under_usual_keys_are_read_without_an_option(key: str) -> None:
    """Argilla uses "annotation", and a text without spans has an empty list."""
    spans = [{"label": "PER", "start": 0, "end": 3}]
    with_spans, without = read(line(text="Ann left", **{key: spans}) + line(text="No one", **{key: []}))
    assert JsonSentences().labels(with_spans) == ("B-PER", "O")
    assert JsonSentences().labels(without) == ("O", "O")


def test_spans_are_written_under_their_key() -> None:
    (plain,) = read('{"text":"Ann left"}')
    assert plain.columns == {}
    assert JsonSentences().write(plain, ["B-X", "O"]) == '{"text":"Ann left","spans":[{"start":0,"end":3,"label":"X"}]}'
    (empty,) = read('{"text": "Ann left", "label": []}')
    assert JsonSentences().labels(empty) == ("O", "O")
    assert JsonSentences().write(empty, ["B-X", "O"]) == '{"text": "Ann left", "label": [[0, 3, "X"]]}'
    (classified,) = read('{"text": "Ann left", "label": "news"}')
    assert classified.columns == {}
    assert JsonSentences().write(classified, ["O", "O"]) == '{"text": "Ann left", "label": "news", "spans": []}'


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=6, unique=True), st.sampled_from(list(SPLITTERS)))
def test_every_span_labels_its_words(text: str, places: list[int], splitter: str) -> None:
    borders = sorted(places)
    pairs = [pair for pair in zip(borders[::2], borders[1::2], strict=False) if pair[1] <= len(text)]
    assume(all(any(not c.isspace() for c in text[start:end]) for start, end in pairs))
    spans = [[start, end, f"L{number}"] for number, (start, end) in enumerate(pairs)]
    (sentence,) = read(line(text=text, spans=spans), splitter=splitter)
    format = JsonSentences(splitter=splitter)
    _, offsets = format.surface(sentence)
    assert [text[start:end] for start, end in offsets] == list(sentence.words)
    assert sentence.words == read(line(text=text), splitter=splitter)[0].words
    labels, misaligned = sentence.column("spans"), {span.label for span in format.misaligned(sentence)}
    for start, end, label in spans:
        covering = [place for place, mark in zip(offsets, labels, strict=True) if mark[2:] == label]
        covered_positions = {place for first, last in covering for place in range(first, last)}
        expected = {place for place in range(start, end) if not text[place].isspace()}
        assert (expected <= covered_positions <= set(range(start, end))) == (label not in misaligned)
        assert expected <= covered_positions or not covered_positions
    assert len(misaligned) == len(format.misaligned(sentence))
    assert format.write_keeping_spans(sentence, labels) == sentence.source.text
    assert (
        misaligned
        or format.write(sentence, labels) == sentence.source.text
        or any(text[a].isspace() or text[b - 1].isspace() for a, b, _ in spans)
    )


def test_offsets_are_code_points() -> None:
    family = "👨\u200d👩\u200d👧"
    text = f"{family} שלום e\u0301t\u00e9 🇩🇪🇫🇷 \x00"
    (sentence,) = read(line(text=text, spans=[[6, 10, "X"]]))
    assert sentence.words == (family, "שלום", "e\u0301té", "🇩🇪", "🇫🇷", "\x00")
    assert sentence.column("spans") == ("O", "B-X", "O", "O", "O", "O")
    output = json.loads(JsonSentences().write(sentence, ["O", "O", "O", "B-Y", "O", "O"]))
    assert [text[start:end] for start, end, _ in output["spans"]] == ["🇩🇪"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{broken\n", "not JSON (Expecting property name enclosed in double quotes in column 2)"),
        ('["a"]\n', "expected a JSON object on each line, such as {...}, or an array of objects"),
        ("{}", 'expected the key "tokens" (a list) or "text", found none'),
        ("\u2028\n", "not JSON (Expecting value in column 1)"),
        (line(txt="a", id=1), 'expected the key "tokens" (a list) or "text", found "txt", "id"'),
        (line(tokens=["a", 1]), '"tokens" must be a list of strings'),
        (line(tokens="a b"), '"tokens" must be a list of strings'),
        (line(text=3), '"text" must be a list of strings or a text'),
        (line(tokens=["a", "b"], labels=["O"]), '"labels" has 1 entries for 2 tokens'),
        (line(tokens=["a"], tags=[None]), '"tags" has entries that are not strings'),
        (line(tokens=["\ud83d"]), "half of a character (the lone surrogate \\ud83d)"),
        (line(text="Ann", spans=[[0, 4, "X"]]), 'the span [0, 4, "X"] is not in the text, which has 3 characters'),
        (
            line(text="Ann", spans=[[-1, 2, "X"]]),
            'the span [-1, 2, "X"] is not in the text, which has 3 characters; '
            "the offsets look like offsets shifted by -1; expected start +1 and end +1",
        ),
        (
            line(text="Ann", spans=[[2, 2, "X"]]),
            'the span [2, 2, "X"] is not in the text, which has 3 characters; '
            "the offsets look like inclusive ends; expected end +1",
        ),
        (line(text="Ann", spans=[[0, 2, ""]]), 'the span [0, 2, ""] has an empty label'),
        (
            line(text="Ann x", spans=[[0, 4, "X"], [3, 5, "Y"]]),
            'the spans [0, 4, "X"] and [3, 5, "Y"] overlap; the recipe tag-nested learns overlapping spans',
        ),
        (line(text="A  x", spans=[[1, 3, "X"]]), 'the span [1, 3, "X"] has only blanks'),
        (
            line(text="Ann", spans=[[0, "3", "X"]]),
            '"spans" must be a list of spans such as {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"]',
        ),
        (
            line(text="Ann", entities=[{"start": 0, "end": True, "label": "X"}]),
            '"entities" must be a list of spans such as {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"]',
        ),
    ],
)
def test_wrong_lines_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(line(tokens=["a"]) + "\n" + text)
    assert str(caught.value) == f"x.jsonl:3: {message}"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"tokens": ["a"], "b": ' + "[" * 400 + "]" * 400 + "}",
        '{"tokens": [' + "9" * 5000 + "]}",
        '{"a": ' * 100_000,
    ],
)
def test_json_that_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"^x\.jsonl:1: "):
        read(text)


def test_missing_keys_are_reported() -> None:
    (sentence,) = read(line(tokens=["a"], ner_tags=["O"]))
    with pytest.raises(DataError, match=r'^x\.jsonl:1: no "ner_tag"; did you mean "ner_tags"\?$'):
        sentence.column("ner_tag")
    with pytest.raises(
        DataError, match=r'^x\.jsonl:1: expected the key "toks", found "tokens"; did you mean "tokens"\?$'
    ):
        read(line(tokens=["a"]), words="toks")
    with pytest.raises(DataError, match=r'^x\.jsonl:1: no "labels"; there are "tokens"; .*"data.labels"'):
        JsonSentences().labels(read(line(tokens=["a"]))[0])


def test_a_long_word_and_a_long_text_are_read() -> None:
    word = "x" * 1_000_000
    assert read(line(tokens=[word]))[0].words == (word,)
    (sentence,) = read(line(text=f"Ann {word}", spans=[[4, 1_000_004, "X"]]))
    assert sentence.column("spans") == ("O", "B-X")


@pytest.mark.parametrize(
    "spans",
    [
        [[0, 3, "A"], [2, 5, "B"]],
        [[0, 8, "A"], [4, 8, "B"]],
        [[0, 8, "A"], [4, 8, "A"]],
        [[0, 3, "A"], [0, 3, "A"]],
        [[0, 99, "A"]],
        [{"start": 0, "end": 3, "label": "A", "text": "x"}],
    ],
)
def test_contradictions_in_labels_are_ignored_if_labels_are_replaced(spans: list[Any]) -> None:
    text = line(id=1, text="Ann left", entities=spans)
    with pytest.raises(DataError):
        read(text)
    reader = JsonSentences()
    reader.is_labeled = False
    (sentence,) = reader.read(Lines([text], "x.jsonl"))
    assert sentence.words == ("Ann", "left")
    for labels, expected in ((["O", "B-C"], [(4, 8, "C")]), (["O", "O"], [])):
        written = json.loads(reader.write(sentence, labels))
        assert [
            tuple(span.values() if isinstance(span, dict) else span)[:3] for span in written.pop("entities")
        ] == expected
        assert written == {"id": 1, "text": "Ann left"}
