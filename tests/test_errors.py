"""Messages of errors."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import MAX_MESSAGE_CHARACTERS as MAX
from ensue.errors import DataError, EnsueError, RecipeError, distinct_names, list_names, pluralize
from ensue.notices import Notice, warn_once
from source_imports import SOURCE


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


def test_a_message_has_a_maximal_length() -> None:
    message = str(RecipeError(f'no recipe named "{"[" * 100_000}"; known: char-lstm'))
    assert len(message) <= MAX
    assert message.startswith('no recipe named "[[')
    assert message.endswith('[["; known: char-lstm')
    assert str(EnsueError("a" * MAX)) == "a" * MAX
    assert str(EnsueError("\n" * MAX)) == str(EnsueError(str(EnsueError("\n" * MAX))))


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
    assert list_names(["a", "b", "c" * 50], 3) == f"a, b, {'c' * 37}..."
    assert list_names(list("abcdefgh")) == "a, b, c, d, e, f, ..."


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ("--resume continues it, --overwrite removes it", "resume=True continues it, overwrite=True removes it"),
        ("choose another --out; --from a/run begins there", 'choose another out; from_run="a/run" begins there'),
        ("--device cpu needs none", 'device="cpu" needs none'),
        ("try --encoding cp1252, or --format", 'try encoding="cp1252", or format'),
        ("no license; --license names one", "no license; license names one"),
        ("--set data.features chooses columns", 'the setting "data.features" chooses columns'),
        ("of --json; may help (--n-best 3)", "of json; may help (n_best 3)"),
        ("--set 'data.labels=am Tag' names it", 'settings={"data.labels": "am Tag"} names it'),
        ("--gold and --temperature are for students", "gold and temperature are for students"),
        ("neither in the run nor with --vectors", "neither in the run nor with vectors"),
        ('--set takes key=value; found "a"', 'settings take key=value; found "a"'),
        ("try: ensue train a --overwrite", "try: ensue train a --overwrite"),
    ],
)
def test_messages_name_arguments_in_python_and_options_on_the_command_line(message: str, in_python: str) -> None:
    assert str(EnsueError(message)) == in_python
    assert EnsueError(message).in_options() == message
    assert (str(Notice(message)), Notice(message).in_options()) == (in_python, message)


@cache
def messages_in(path: Path) -> list[str]:
    return [*message_literals(path)]


def message_literals(path: Path) -> Iterator[str]:
    """Yield the strings of a module, except docstrings, with X for each value of an f-string."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text if re.search(r"[^-]--[a-z]|\} [a-z]+s (have|are|were|do)\b", text) else "")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr | ast.Expr)]
    pieces = {id(piece) for node in nodes if isinstance(node, ast.JoinedStr) for piece in node.values}
    pieces |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(piece.value if isinstance(piece, ast.Constant) else "X" for piece in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.value


def test_no_message_names_an_option_in_python() -> None:
    """Commands for the shell may name options."""
    option = re.compile(r"(?<![\w-])--[a-z]")
    messages = [text for path in SOURCE.rglob("*.py") for text in messages_in(path) if option.search(text)]
    assert len(messages) > 200
    for message in messages:
        text = re.split(r"(?=\bensue [a-z]|$)", str(EnsueError(message)), maxsplit=1)[0]
        assert not option.search(text), text


AT_LEAST_TWO = {
    "X bytes do", "X words are one sentence", "X words are drawn", "X characters are not supported",
    "X pairs are similar", "X columns are named", "X lines are", "X words are read", "X labels have",
}  # fmt: skip
"""Beginnings of messages whose count is never 1, such as sizes, bounds and ranges."""


def test_a_count_that_may_be_one_agrees_with_its_verb() -> None:
    """Messages with a count that may be one use `pluralize`."""
    plural = re.compile(r"(?<!of )(?<!first )\bX [a-z]+s (?:have|are|were|do)\b.*")
    messages = [text for path in SOURCE.rglob("*.py") for text in messages_in(path)]
    plurals = [match[0] for text in messages for match in plural.finditer(text)]
    assert [text for text in plurals if not text.startswith((*AT_LEAST_TWO,))] == []
    assert len(plurals) == len(AT_LEAST_TWO)
    assert plural.search("X recordings have several channels")
    assert [pluralize(count, "pair is", "pairs are") for count in (1, 2)] == ["1 pair is", "2 pairs are"]
    assert [pluralize(count, "column") for count in (0, 1, 1000)] == ["0 columns", "1 column", "1,000 columns"]


def test_a_notice_names_the_line_that_called_the_library() -> None:
    """The depth of the call in the package does not matter, and neither does a generator between them."""
    package: dict[str, Any] = {"__name__": "ensue.package", "warn_once": warn_once}
    exec("def inner(): warn_once('a topic of this test', 'slow')\n\ndef outer(): yield inner()", package)
    with pytest.warns(Notice, match="slow") as caught:
        list(package["outer"]())
    assert [warning.filename for warning in caught] == [__file__]
