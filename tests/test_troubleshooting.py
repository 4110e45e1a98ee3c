"""The page of troubleshooting has the messages of the source, and no others.

That none is missing is tested beside the other pages.
"""

import ast
import re
from itertools import pairwise

import pytest

from messages import GAP, Message, is_telling, kinds, messages_of, quoted, said, texts
from pages import REPOSITORY, TROUBLESHOOTING_PAGE, first_cells


def entries() -> dict[str, str]:
    """The headings of the third level, and the text below each."""
    parts = re.split(r"^###? (.+)$", TROUBLESHOOTING_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.slow
def test_each_message_of_the_page_is_one_of_the_source() -> None:
    assert [text for text in quoted(TROUBLESHOOTING_PAGE.read_text(encoding="utf-8")) if not said(text)] == []


def test_each_entry_has_a_cause_and_a_remedy() -> None:
    found = {name: text for name, text in entries().items() if quoted(text)}
    assert len(found) > 30
    assert [
        name for name, text in found.items() if not re.search(r"\n\*\*Cause:\*\* .+\n[^#]*\n\*\*Remedy:\*\* ", text)
    ] == []


def test_each_kind_of_error_has_its_row() -> None:
    assert sorted(first_cells(TROUBLESHOOTING_PAGE, "kind")) == sorted(kinds())


def test_no_message_stands_twice() -> None:
    found = sorted(quoted(TROUBLESHOOTING_PAGE.read_text(encoding="utf-8")))
    assert [a for a, b in pairwise(found) if a == b and is_telling(a)] == []


@pytest.mark.parametrize("text", ["…: no such run directories", "no file matched", "which recipes?"])
def test_a_message_that_is_not_there_is_noticed(text: str) -> None:
    assert not said(text)


def test_messages_are_read_from_the_source() -> None:
    found = set(messages_of(REPOSITORY / "src" / "ensue" / "runs" / "schema.py"))
    assert Message(f"{GAP}: no such run directory", "RunError", "runs/schema.py") in found
    assert Message(f"{GAP}: damaged: no {GAP}", "DamagedError", "runs/schema.py") in found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('"a" + f" {b} c"', [f"a {GAP} c"]),
        ('f"{a}{b}: {c}"', [f"{GAP}: {GAP}"]),
        ('"one" if a else f"{b} other"', ["one", f"{GAP} other"]),
        ("f(a)", [GAP]),
    ],
)
def test_what_varies_is_a_gap(code: str, expected: list[str]) -> None:
    assert texts(ast.parse(code, mode="eval").body) == expected
