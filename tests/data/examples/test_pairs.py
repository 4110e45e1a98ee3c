"""Detection and reading of pairs in every format."""

from itertools import chain, islice, repeat
from pathlib import Path

import pytest

from ensue.data.examples import PairLayout, PairSource, with_references
from ensue.data.lines import Lines
from ensue.data.records.record import Column
from ensue.errors import DataError


def source(path: Path, text: str | bytes, name: str = "a.txt", **options: object) -> PairSource:
    file = path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return PairSource(file, **options)  # type: ignore[arg-type]


def sides(pairs: PairSource) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(pair.sources, pair.targets) for pair in pairs]


SIGMORPHON = "run\tran\tV;PST\ndog\tdogs\tN;PL\n"
DIALOGUE = 'id,dialogue,summary\r\n1,"A: hi\r\nB: ""ho""",They greet.\r\n2,x,y\r\n'
REFERENCES = '{"dialogue": "d", "summary1": "a", "summary2": "b", "summary3": "c", "topic1": "t"}\n'

FORMATS = [
    ("a.tsv", "one\teins\ntwo\tzwei\n", "tsv, source: column 1, target: column 2",
     [(("one",), ("eins",)), (("two",), ("zwei",))]),
    ("a.txt", "one\teins\r\n\ntwo \t zwei", "tsv, source: column 1, target: column 2",
     [(("one",), ("eins",)), (("two ",), (" zwei",))]),
    ("a.txt", "a\tb\tlicense\n", "tsv, source: column 1, target: column 2", [(("a",), ("b",))]),
    ("a.tsv", "target\tid\tsource\nx\t1\ty\n",
     'tsv with a header, source: column 3 "source", target: column 1 "target"', [(("y",), ("x",))]),
    ("a.csv", "en,de\na house,ein Haus\n", 'csv with a header, source: column 1 "en", target: column 2 "de"',
     [(("a house",), ("ein Haus",))]),
    ("a.csv", "it,es\nno,si\n", "csv, source: column 1, target: column 2", [(("it",), ("es",)), (("no",), ("si",))]),
    ("a.csv", DIALOGUE, 'csv with a header, source: column 2 "dialogue", target: column 3 "summary"',
     [(('A: hi\r\nB: "ho"',), ("They greet.",)), (("x",), ("y",))]),
    ("a.csv", "question;context;answer\nq;c;a\n",
     'csv-semicolon with a header, source: column 1 "question" + column 2 "context", target: column 3 "answer"',
      [(("q", "c"), ("a",))]),
    ("a.jsonl", REFERENCES, 'json, source: "dialogue", references: "summary1", "summary2", "summary3"',
     [(("d",), ("a", "b", "c"))]),
    ("a.txt", '[{"src": "a", "tgt": "b\\nc"},\n {"src": "d", "tgt": "e"}]', 'json, source: "src", target: "tgt"',
     [(("a",), ("b\nc",)), (("d",), ("e",))]),
    ("a.json", '{"id": "7", "translation": {"de": "eins", "en": "one"}}\n', 'json, source: "de", target: "en"',
     [(("eins",), ("one",))]),
    ("a.json", '{"question": "q", "answers": ["a", "b"]}\n', 'json, source: "question", target: "answers"',
     [(("q",), ("a", "b"))]),
    ("a.txt", "IN: walk twice OUT: I_WALK I_WALK\n", "scan, source: after IN:, target: after OUT:",
     [(("walk twice",), ("I_WALK I_WALK",))]),
    ("a", "A 1 AH0\nA 2 EY1\n'TIS 1 T IH1 Z\n", "cmudict, source: the word, target: its phonemes",
     [(("A",), ("AH0",)), (("A",), ("EY1",)), (("'TIS",), ("T IH1 Z",))]),
    ("a.dict", ";;; a comment\nREAD  R EH1 D\nREAD(1)  R IY1 D\nd'artagnan D AH0 # foreign french\n",
     "cmudict, source: the word, target: its phonemes",
     [(("READ",), ("R EH1 D",)), (("READ",), ("R IY1 D",)), (("d'artagnan",), ("D AH0",))]),
    ("a.tsv", SIGMORPHON, "sigmorphon, source: column 1 + column 3, target: column 2",
     [(("run", "V;PST"), ("ran",)), (("dog", "N;PL"), ("dogs",))]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "layout", "expected"), FORMATS, ids=[f"{row[2][:25]}" for row in FORMATS])
def test_the_layout_of_a_file_of_pairs_is_detected(
    name: str, text: str, layout: str, expected: list[tuple[tuple[str, ...], tuple[str, ...]]], tmp_path: Path
) -> None:
    pairs = source(tmp_path, text, name)
    assert str(pairs.layout) == layout
    assert sides(pairs) == expected == sides(pairs)
    assert PairLayout.from_json(pairs.layout.to_json()) == pairs.layout


def test_a_pair_has_its_file_and_first_line(tmp_path: Path) -> None:
    pairs = list(source(tmp_path, DIALOGUE, "a.csv"))
    assert [(pair.path, pair.line) for pair in pairs] == [(str(tmp_path / "a.csv"), line) for line in (2, 4)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sources": ["3"], "targets": ["1"]}, (("c",), ("a",))),
        ({"sources": ["1", "3"], "targets": ["2"]}, (("a", "c"), ("b",))),
        ({"sources": ["2"]}, (("b",), ("a",))),
        ({"targets": ["1", "3"]}, (("b",), ("a", "c"))),
        ({"targets": ["1"]}, (("b",), ("a",))),
    ],
)
def test_columns_can_be_chosen_by_number(
    options: dict[str, list[str]], expected: tuple[tuple[str, ...], tuple[str, ...]], tmp_path: Path
) -> None:
    assert sides(source(tmp_path, "a\tb\tc\n", **options)) == [expected]


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.csv", "id,dialogue,summary\n1,a,b\n", {"sources": ["dialog"], "targets": ["summary"]},
         ':1: no "dialog"; did you mean "dialogue"?'),
        ("a.csv", "a,b,c\n1,2,3\n", {"sources": ["a"], "targets": ["a"]},
         ': column 1 "a" is named as source and as target'),
        ("a.json", '{"a": "1", "b": "2", "c": "3"}\n', {},
         ': cannot tell which column is the source and which the target: there are "a", "b", "c";'
         " use --set data.sources=... and data.targets=..."),
        ("a.tsv", "a\nb\n", {}, ":1: 1 column; expected a source, a tab and a target"),
        ("a.txt", "a\tb\nc\td\te\n", {}, ":2: 3 columns; expected 2 as in line 1"),
        ("a.txt", "a\tb\nc\td\ne\tf\ng\n", {}, ":4: 1 column; expected 2 as in line 1"),
        ("a.txt", "a\tb\n\td\n", {}, ':2: an empty source, whose target is "d"'),
        ("a.txt", "a\tb\nc\t \n", {}, ':2: an empty target, whose source is "c"'),
        ("a.txt", "a\tb\0\n", {}, ":1: a NUL character in column 4; expected text"),
        ("a.txt", b"a\tb\nc\xff\td\n", {}, ":2: not UTF-8 (byte 0xff in column 2)"),
        ("a.txt", "no pairs\nat all\n", {}, ": no pairs found; expected a source, a tab and a target in each line,"),
        ("a.txt", "no pairs\nat all\n", {}, "them; or set --format (in training --set data.format=...) to one of"),
        ("a.txt", "IN: a OUT: b\nIN: a\n", {"format": "scan"}, ':2: expected "IN: source OUT: target"'),
        ("a.txt", "A  AH0\nB\n", {"format": "cmudict"}, ":2: expected a word and its phonemes"),
        ("a.txt", "IN: a OUT: b\n", {"sources": ["1"]}, ": scan has no columns;"),
        ("a.txt", "a\tb\n", {"format": "tvs"}, 'unknown format "tvs"; did you mean "tsv"?'),
        ("a.json", '{"source": "a", "target": 7}\n', {}, ':1: "target": expected a string, found 7'),
        ("a.json", '{"source": "a", "target": "b"}\n{"source": "a"}\n', {}, ':2: no "target"; there are "source"'),
        ("a.json", '{"source": "a", "target": []}\n', {}, ':1: an empty target, whose source is "a"'),
    ],
)  # fmt: skip
def test_an_error_is_one_line_with_file_and_line(
    name: str, text: str | bytes, options: dict[str, list[str]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        list(source(tmp_path, text, name, **options))
    assert message in error.value.in_options()
    assert "\n" not in str(error.value)


def test_an_empty_text_has_no_sources() -> None:
    assert list(PairSource(Lines([], "stdin"), is_labeled=False)) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("opening", "more"),
    [
        ("", "a\tb\n"), ("source,target\n", 'a,"b\n"\n'), ("", '{"source": "a", "target": "b"}\n'),
        ("[", '{"source": "a", "target": "b"},\n'), ("", "IN: a OUT: b\n"), ("", "A  AH0\n"),
    ],
)  # fmt: skip
def test_pairs_of_a_stream_are_read_one_by_one(opening: str, more: str) -> None:
    name = "a.csv" if opening.startswith("source") else "stdin"
    pairs = PairSource(Lines(chain([opening + more], repeat(more * 100)), name))
    assert sum(1 for _ in islice(pairs, 3000)) == 3000


def test_each_file_of_a_folder_has_its_own_columns(tmp_path: Path) -> None:
    (tmp_path / "1.tsv").write_text("source\ttarget\na\tb\n", encoding="utf-8")
    (tmp_path / "2.tsv").write_text("target\tsource\nd\tc\n", encoding="utf-8")
    assert sides(PairSource(tmp_path)) == [(("a",), ("b",)), (("c",), ("d",))]


@pytest.mark.parametrize(
    ("like", "text", "expected"),
    [
        (None, "a\n\nb c\n", [("a",), ("",), ("b c",)]),
        (PairLayout("tsv", (Column(1),), (Column(2),)), "a\n\nb\n", [("a",), ("",), ("b",)]),
        (PairLayout("tsv", (Column(2),), (Column(1),)), "a\tb\n", [("b",)]),
        (PairLayout("tsv", (Column(2),), (Column(1),)), "b\nc\n", [("b",), ("c",)]),
        (PairLayout("sigmorphon", (Column(1), Column(3)), (Column(2),)), SIGMORPHON,
         [("run", "V;PST"), ("dog", "N;PL")]),
        (PairLayout("sigmorphon", (Column(1), Column(3)), (Column(2),)), "run\tV;PST\n", [("run", "V;PST")]),
        (PairLayout("csv", (Column(2, "dialogue"),), (Column(3, "summary"),), True), DIALOGUE,
         [('A: hi\r\nB: "ho"',), ("x",)]),
        (PairLayout("csv", (Column(2, "dialogue"),), (Column(3, "summary"),), True), "one line\n", [("one line",)]),
        (PairLayout("json", (Column(0, "dialogue"),), (Column(0, "summary"),)), '{"dialogue": "d"}\n', [("d",)]),
        (PairLayout("scan"), "walk twice\n", [("walk twice",)]),
        (PairLayout("scan"), "IN: walk OUT: I_WALK\n", [("walk",)]),
        (PairLayout("cmudict"), "WORD\nOK\n", [("WORD",), ("OK",)]),
    ],
)  # fmt: skip
def test_sources_alone_are_read_as_lines_or_in_the_layout_of_the_run(
    like: PairLayout | None, text: str, expected: list[tuple[str, ...]], tmp_path: Path
) -> None:
    pairs = source(tmp_path, text, like=like, is_labeled=False)
    assert sides(pairs) == [(sources, ()) for sources in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,text\n1,a b c\n", [("a b c",)]), ("nr,satz\n1,a b c\n", [("a b c",)]), ("text\na b c\n", [("a b c",)]),
        ("text\nword\n", [("text",), ("word",)]), ("message,N;PL\nsea,N;SG\n", [("message",), ("sea",)]),
        ("lemma,tag\nsea,N;SG\n", [("sea", "N;SG")]),
        ("foo,7\na b c,8\n", [("foo",), ("a b c",)]), ("foo,id\na b c,x\n", [("foo",), ("a b c",)]),
    ],
)  # fmt: skip
def test_headers_of_sources_have_usual_names(text: str, expected: list[tuple[str, ...]], tmp_path: Path) -> None:
    pairs = source(tmp_path, text, "a.csv", like=PairLayout("aligned"), is_labeled=False)
    assert sides(pairs) == [(sources, ()) for sources in expected]


def test_the_source_of_a_table_of_sources_is_never_guessed(tmp_path: Path) -> None:
    for text in ("nr,author,date\n1,b,c\n", "foo,id\na b c,7\nd e,-3.5\n", ",foo\n0,a b\n"):
        name = text.partition("\n")[0].split(",")[1]
        with pytest.raises(DataError, match=rf'which column is the source: .*column 1.*, column 2 "{name}"'):
            source(tmp_path, text, "a.csv", is_labeled=False)


def test_numbered_references_are_found_by_the_name_of_training(tmp_path: Path) -> None:
    like = PairLayout("json", (Column(0, "dialogue"),), (Column(0, "summary"),))
    assert sides(source(tmp_path, REFERENCES, "a.jsonl", like=like)) == [(("d",), ("a", "b", "c"))]


def test_data_of_unknown_format_are_read_in_the_layout_of_training(tmp_path: Path) -> None:
    """Phonemes without the stress of vowels have an ambiguous format."""
    text = "A 1 AH\nA 2 EY\n"
    with pytest.raises(DataError, match="no pairs found"):
        source(tmp_path, text)
    assert sides(source(tmp_path, text, like=PairLayout("cmudict"))) == [(("A",), ("AH",)), (("A",), ("EY",))]


def test_equal_sources_become_one_pair_with_references(tmp_path: Path) -> None:
    pairs = with_references(source(tmp_path, "A 1 AH0\nB 1 B IY1\nA 2 EY1\nA 3 AH0\n"))
    assert [(pair.sources, pair.targets, pair.line) for pair in pairs] == [
        (("A",), ("AH0", "EY1"), 1),
        (("B",), ("B IY1",), 2),
    ]
