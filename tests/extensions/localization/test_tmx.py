"""TMX: languages, texts without inline codes, and malicious files."""

from itertools import chain, islice, repeat
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data.detection.kind import detect
from ensue.data.examples import PairSource
from ensue.data.lines import Lines
from ensue.errors import DataError

OPENING = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n<body>\n'
CLOSING = "</body></tmx>\n"


def unit(**texts: str) -> str:
    variants = "".join(
        f'<tuv xml:lang="{name.replace("_", "-")}"><seg>{text}</seg></tuv>' for name, text in texts.items()
    )
    return f"<tu>{variants}</tu>\n"


def stream(body: str, opening: str = OPENING, closing: str = CLOSING, **options: object) -> PairSource:
    return PairSource(Lines([opening + body + closing], "a.tmx"), **options)  # type: ignore[arg-type]


def sides(pairs: PairSource) -> list[tuple[str, ...]]:
    return [(*pair.sources, *pair.targets) for pair in pairs]


def test_the_first_two_languages_are_source_and_target() -> None:
    pairs = stream(unit(en="one &amp; two", de="eins", fr="un") + unit(de="drei", en="three") + unit(en="four", fr="q"))
    assert str(pairs.layout) == 'tmx, source: "en", target: "de"'
    assert [pair[:4] for pair in pairs] == [
        (("one & two",), ("eins",), "a.tmx", 5),
        (("three",), ("drei",), "a.tmx", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sources": ["de"], "targets": ["en"]}, [("eins", "one"), ("zwei", "two")]),
        ({"sources": ["fr-CA"]}, [("un", "one")]),
        ({"targets": ["FR"]}, [("one", "un")]),
        ({"is_labeled": False}, [("one",), ("two",)]),
        ({"sources": ["de"], "is_labeled": False}, [("eins",), ("zwei",)]),
    ],
)
def test_languages_are_chosen(options: dict[str, list[str]], expected: list[tuple[str, ...]]) -> None:
    body = unit(en_US="one", de="eins", fr_CA="un") + unit(en_US="two", de="zwei")
    assert sides(stream(body, **options)) == expected


def test_codes_inside_of_a_text_are_no_text() -> None:
    text = ' a <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> <hi>word</hi><ph>{1}</ph>\n'
    assert sides(stream(unit(en=text, de="<![CDATA[x < y]]>"))) == [("a bold word", "x < y")]


def test_two_texts_of_the_target_are_references() -> None:
    body = unit(en="one", de="eins").replace("</tu>", '<tuv lang="de-AT"><seg>ein</seg></tuv></tu>')
    assert sides(stream(body)) == [("one", "eins", "ein")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_a_file_is_in_the_encoding_that_it_names(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes((OPENING.replace("UTF-8", encoding) + unit(en="naïve", de="naïv") + CLOSING).encode(encoding))
    assert sides(PairSource(path)) == [("naïve", "naïv")]


LAUGHS = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><tmx><body>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS + unit(en="&b;", de="x") + CLOSING, ":1: an entity is declared (a); entities are not expanded"),
        (OPENING + unit(en="&nbsp;", de="x") + CLOSING, ":5: unknown entity &nbsp;"),
        (OPENING + unit(en="a", de="b") + "<tu>" + CLOSING, ":6: not XML (mismatched tag in column 7)"),
        (OPENING + unit(en="a", de="b"), ":6: not XML (no element found in column 1)"),
        (OPENING + "<x>" * 70, ":5: elements nested more than 64 deep"),
        (OPENING + unit(en="a", de="b") + unit(en="a", de=" ") + CLOSING, ':6: an empty target, whose source is "a"'),
        (OPENING + unit(en="a\0", de="b") + CLOSING, ":5: not XML (not well-formed (invalid token) in column 30)"),
        (OPENING + CLOSING, ": expected units with two languages, found no units"),
        (OPENING + unit(en="a") + CLOSING, ": expected units with two languages, found en"),
        ("<html></html>", ":1: expected the element tmx, found html"),
        (OPENING + unit(en="a") + unit(de="b") + CLOSING, ": no unit with en and de"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        list(PairSource(Lines([text], "a.tmx")))
    assert str(error.value).partition(";")[0] == f"a.tmx{message}".partition(";")[0]


def test_an_unknown_language_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DataError, match='no language "dd"; did you mean "de"'):
        stream(unit(en="a", de="b"), targets=["dd"])


@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1)] * 2))
)
def test_any_text_round_trips(texts: list[tuple[str, str]]) -> None:
    texts = [(source.strip() or "x", target.strip() or "x") for source, target in [("a", "b"), *texts]]
    body = "".join(unit(en=escape(source), de=escape(target)) for source, target in texts)
    assert sides(stream(body)) == texts


def test_units_are_streamed() -> None:
    lines = Lines(chain(["<tmx><body>"], repeat(unit(a="a", b="b") * 100)), "stdin")
    assert sum(1 for _ in islice(PairSource(lines), 3000)) == 3000


@pytest.mark.parametrize(
    ("name", "text"), [("x.tmx", "anything"), ("x.xml", '<?xml version="1.0"?>\n<tmx version="1.4"><body>\n')]
)
def test_a_translation_memory_is_detected(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    detected = detect(tmp_path / name)
    assert (detected.kind, detected.format, detected.is_default) == ("pairs", "tmx", True)


SIGNS = [
    "<tmx>", "<tu>", "</tu>", '<tuv lang="en">', '<tuv lang="de">', "</tuv>", "<seg>", "</seg>", "</tmx>", "&x;", "a",
    " ", "\n", "\0", "é", "&amp;", "<!--", "-->", "<![CDATA[",
]  # fmt: skip


@given(st.lists(st.sampled_from(SIGNS)), st.booleans())
def test_any_content_gives_pairs_or_an_error_of_one_line(signs: list[str], is_labeled: bool) -> None:
    message = ""
    try:
        for pair in PairSource(Lines(["".join(signs)], "a"), format="tmx", is_labeled=is_labeled):
            assert bool(pair.targets) == is_labeled
    except DataError as error:
        message = str(error)
    assert "\n" not in message
