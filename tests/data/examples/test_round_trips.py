"""Pairs of every format come back, and any text is read or refused with one line."""

import csv
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ensue.data.examples import PairSource
from ensue.data.examples.formats import PAIR_FORMATS
from ensue.data.lines import Lines
from ensue.errors import DataError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20).filter(
    str.strip
)
LINE = TEXT.map(lambda text: text.replace("\n", " ").replace("\r", " ").replace("\t", " ")).filter(str.strip)
SIGNS = st.sampled_from(
    [
        *(
            "a", " ", "\t", "\n", "\r\n", ",", ";", '"', "{", "}", "[", "]", ":", "\\", "\0", "IN:", " OUT: ", "AH0",
            "1",
        ),
        *('"source"', '"target"', "source", "target", "V;PST", "é", "語", "&amp;", "<!--", "-->", "<![CDATA["),
    ]
)  # fmt: skip


def sides(text: str, name: str, **options: str) -> Iterator[tuple[str, ...]]:
    for pair in PairSource(Lines([text], name), **options):  # type: ignore[arg-type]
        yield (*pair.sources, *pair.targets)


@given(st.lists(st.tuples(LINE, LINE), min_size=1, max_size=8))
def test_pairs_with_tabs_round_trip(rows: list[tuple[str, str]]) -> None:
    text = "".join("\t".join(row) + "\n" for row in [("source", "target"), *rows])
    assert list(sides(text, "a.tsv")) == rows


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), st.sampled_from([",", ";"]))
def test_pairs_with_quotes_round_trip(rows: list[tuple[str, str]], delimiter: str) -> None:
    table = io.StringIO(newline="")
    csv.writer(table, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("source", "target"), *rows])
    name = "csv" if delimiter == "," else "csv-semicolon"
    assert list(sides(table.getvalue(), "a.csv", format=name)) == rows


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_pairs_of_json_round_trip(rows: list[tuple[str, str, str]], is_array: bool, is_ascii: bool) -> None:
    objects = [{"article": source, "summary2": second, "summary1": target} for source, target, second in rows]
    lines = "\n".join(json.dumps(content, ensure_ascii=is_ascii) for content in objects)
    text = json.dumps(objects, ensure_ascii=is_ascii) if is_array else lines
    assert list(sides(text, "a")) == rows


@given(st.lists(st.tuples(LINE, LINE), min_size=1, max_size=8))
def test_pairs_of_instructions_round_trip(rows: list[tuple[str, str]]) -> None:
    rows = [(source.replace("OUT:", "").strip(" ") or "x", target.strip(" ")) for source, target in rows]
    text = "".join(f"IN: {source} OUT: {target}\n" for source, target in rows)
    assert list(sides(text, "a", format="scan")) == rows


@given(st.lists(LINE | st.just(""), max_size=8))
def test_every_line_is_a_source(rows: list[str]) -> None:
    text = "".join(f"{row}\n" for row in rows)
    pairs = PairSource(Lines([text], "a"), format="plain", is_labeled=False)
    assert [pair.sources for pair in pairs] == [(row if row.strip() else "",) for row in rows]


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("format", ["", *PAIR_FORMATS])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SIGNS, max_size=30).map("".join), st.booleans())
def test_any_text_is_read_as_pairs_or_refused_with_one_line(format: str, text: str, is_labeled: bool) -> None:
    output = ""
    try:
        for pair in PairSource(Lines([text], "a"), format=format, is_labeled=is_labeled):
            assert bool(pair.targets) == is_labeled
            assert not is_labeled or any(map(str.strip, pair.sources))
    except DataError as error:
        output = str(error)
    assert "\n" not in output
