"""Markup in outputs: each piece occurs once, nesting is preserved, and the text of the output stays the same."""

import re
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.extensions.localization.markup import MARKUP, find_units, link_by_position, link_units, split_markup

PIECES = ["<b>", "</b>", "<i>", "</i>", "<a href='x y'>", "</a>", "<br/>", "{name}", "{0}", "%s", "%(n)d", "&nbsp;"]
WORDS = ["Ada", "sees", "a", "sea", ",", ".", "(", "un", "50%"]


def without_blanks(text: str) -> str:
    return re.sub(r"\s", "", text)


def is_nested(pieces: list[str]) -> bool:
    open_names: list[str] = []
    for piece in pieces:
        if piece.startswith("</"):
            if not open_names or open_names.pop() != piece[2]:
                return False
        elif piece.startswith("<") and not piece.endswith("/>"):
            open_names.append(piece[1])
    return not open_names


@given(
    source=st.lists(st.sampled_from([*PIECES, *WORDS, " ", " "]), max_size=25).map("".join),
    output=st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
    data=st.data(),
)
def test_every_piece_of_markup_comes_out_once(source: str, output: str, data: st.DataObject) -> None:
    """For any output, and any links of its words."""
    marked = split_markup(source)
    links = [data.draw(st.one_of(st.none(), st.integers(0, max(0, len(marked.units) - 1)))) for _ in find_units(output)]
    result = marked.with_output(output, links)
    pieces, source_pieces = MARKUP.findall(result), MARKUP.findall(source)
    assert Counter(pieces) == Counter(source_pieces)
    assert not is_nested(source_pieces) or is_nested(pieces)
    if marked.units:
        assert without_blanks(MARKUP.sub("", result)) == without_blanks(output)
    else:
        assert result == source


@given(source=st.lists(st.sampled_from([*PIECES, *WORDS, " "]), max_size=25).map("".join))
def test_the_plain_text_is_the_text_without_markup(source: str) -> None:
    marked = split_markup(source)
    assert without_blanks(marked.plain) == without_blanks(MARKUP.sub("", source))
    assert [marked.plain[slice(*span)] for span in marked.units] == [
        word for part in MARKUP.split(source) for word in (part[slice(*span)] for span in find_units(part))
    ]


@pytest.mark.parametrize(
    ("source", "plain", "output", "links", "expected"),
    [
        ("a <b>red</b> sea", "a red sea", "mer rouge", [2, 1], "mer <b>rouge</b>"),
        ("<p>a <b>red</b> sea.</p>", "a red sea.", "mer rouge.", [2, 1, 3], "<p>mer <b>rouge</b>.</p>"),
        ("Hello {name}, you", "Hello, you", "Hallo, du", [0, 1, 2], "Hallo {name}, du"),
        ("have {n} mails", "have mails", "Mails haben", [1, 0], "{n} Mails haben"),
        ("end<br/>begin", "end begin", "Ende Anfang", [0, 1], "Ende <br/>Anfang"),
        ("un<b>lock</b>ed", "unlocked", "offen", [1], "<b>offen</b>"),
        ("<p>one</p><p>two</p>", "one two", "eins zwei", [0, 1], "<p>eins</p> <p>zwei</p>"),
        ("<b>no</b> word", "no word", "Wort", [1], "<b>Wort</b>"),
        ("<b>no</b> <i>word</i>", "no word", "Wort", [1], "<b></b> <i>Wort</i>"),
        ("run in {place}.", "run in.", "rennen in der Hand", [0, 1, 2, None], "rennen in {place} der Hand"),
        ("<p>one two.</p>", "one two.", "eins zwei.", [0, 1, None], "<p>eins zwei.</p>"),
        ("field {x} at it.", "field at it.", "Feld.", [0, 1], "Feld {x}."),
        ("5 %s on", "5 on", "an 5", [1, 0], "%s an 5"),
        ("go (%s)", "go ()", "5", [0], "5 %s"),
        ("<i>a</i> b", "a b", "x y z", [0, None, 0], "<i>x y z</i>"),
        ("5 < 6 & 7, 100% sure", "5 < 6 & 7, 100% sure", "5", [0], "5"),
        ("{a} {b}", "", "so", [None], "{a} {b}"),
    ],
)
def test_markup_is_placed_at_the_linked_words(
    source: str, plain: str, output: str, links: list[int | None], expected: str
) -> None:
    marked = split_markup(source)
    assert marked.plain.strip() == plain
    assert marked.with_output(output, links) == expected


def test_words_are_linked_by_the_attention_of_their_tokens() -> None:
    source, output = [(0, 3), (4, 7)], [(0, 4), (5, 9), (9, 10)]
    tokens, of_tokens = [(0, 2), (2, 4), (4, 9), (9, 10)], [(0, 3), (3, 5), (5, 7)]
    assert link_units(output, tokens, [1, 2, 0, 3], source, of_tokens) == [1, 0, None]
    assert link_by_position(3, 6) == [1, 3, 5]
    words = [(0, 1), (2, 3)]  # both output words attend to the second one: the first one gets its neighbor
    assert link_units(words, words, [1, 1], words, words) == [0, 1]


HOSTILE = {
    "comments without an end": "<!--" * 60_000,
    "deep": "<a>x " * 5_000 + "</a>" * 5_000,
    "names that end nothing": "".join(f"<a{number}>" for number in range(20_000)) + "</b>" * 20_000,
    "pieces that nothing is near": "x <br/>" * 5_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markup_takes_seconds(name: str) -> None:
    start, output = time.process_time(), "y " * 100
    marked = split_markup(HOSTILE[name])
    result = marked.with_output(output, [0 if marked.units else None] * 100)
    assert Counter(MARKUP.findall(result)) == Counter(MARKUP.findall(HOSTILE[name]))
    assert time.process_time() - start < 10


def test_links_to_a_long_source_take_seconds() -> None:
    start, units = time.process_time(), find_units("ab " * 20_000)
    assert link_units(units[:1], units[:1], [19_999], units, units) == [19_999]
    assert time.process_time() - start < 10
