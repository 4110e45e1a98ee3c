"""Messages of errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import LONGEST, DataError, EnsueError, RecipeError, distinct_names, listed


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("not JSON", "a\x1b[31m.json", 3), r"a\x1b[31m.json:3: not JSON"),
        (DataError("no rows", "caf\u00e9.tsv"), "caf\u00e9.tsv: no rows"),
        (EnsueError("a\x00b\x7f\x9b\nand a line"), r"a\x00b\x7f\x9b\nand a line"),
        (DataError("no rows", "a\nb\tc\r\u2028d"), r"a\nb\tc\r\u2028d: no rows"),
        (DataError("no rows", "\u202etvs.a"), r"\u202etvs.a: no rows"),
        (DataError("no rows", "\u05d0\u200f.tsv"), "\u05d0\u200f.tsv: no rows"),
    ],
)
def test_control_characters_are_escaped(error: EnsueError, message: str) -> None:
    assert str(error) == message


def test_a_message_is_bounded_whatever_is_in_it() -> None:
    message = str(RecipeError(f'no recipe named "{"[" * 100_000}"; known: char-lstm'))
    assert len(message) <= LONGEST
    assert message.startswith('no recipe named "[[')
    assert message.endswith('[["; known: char-lstm')
    assert str(EnsueError("a" * LONGEST)) == "a" * LONGEST
    assert str(EnsueError("\n" * LONGEST)) == str(EnsueError(str(EnsueError("\n" * LONGEST))))


@given(st.lists(st.text("ab", max_size=16), unique=True))
def test_names_that_are_cut_stay_distinct(names: list[str]) -> None:
    shown = distinct_names(names, 8)
    assert len(set(shown)) == len(names)
    assert all(name == text for name, text in zip(names, shown, strict=True) if len(name) <= 8)


def test_names_are_cut_at_the_end_or_in_the_middle() -> None:
    assert distinct_names(["a" * 9, "short"], 8) == ["aaaaa...", "short"]
    assert distinct_names(["aaaaa-one", "aaaaa-two"], 8) == ["aa...ne", "aa...wo"]
    assert distinct_names(["aaaaa-one", "aaaaa-ane"], 8) == ["aaaaa-one", "aaaaa-ane"]
    assert distinct_names(["a\nb", "a\nb"]) == [r"a\nb"] * 2
    assert listed(["a", "b", "c" * 50], 3) == f"a, b, {'c' * 37}..."
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f, ..."
