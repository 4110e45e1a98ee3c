"""Messages of errors."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import MAX_MESSAGE_CHARACTERS as MAX
from ensue.errors import DataError, EnsueError, RecipeError, distinct_names, listed
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


def test_a_message_is_bounded_whatever_is_in_it() -> None:
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
    assert listed(["a", "b", "c" * 50], 3) == f"a, b, {'c' * 37}..."
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f, ..."


@pytest.mark.parametrize(
    ("message", "in_python"),
    [
        ("--resume continues it, --overwrite removes it", "resume=True continues it, overwrite=True removes it"),
        ("choose another --out; --from a/run begins there", 'choose another out; from_run="a/run" begins there'),
        ("--device cpu needs none", 'device="cpu" needs none'),
        ("try --encoding cp1252, or --format", 'try encoding="cp1252", or format'),
        ("no license; --license names one", "no license; license names one"),
        ("--set data.features chooses columns", 'the setting "data.features" chooses columns'),
        ("--gold and --temperature are for students", "gold and temperature are for students"),
        ("neither in the run nor with --vectors", "neither in the run nor with vectors"),
        ('--set takes key=value; found "a"', 'settings take key=value; found "a"'),
        ("try: ensue train a --overwrite", "try: ensue train a --overwrite"),
    ],
)
def test_messages_speak_python_in_python_and_options_on_the_command_line(message: str, in_python: str) -> None:
    assert str(EnsueError(message)) == in_python
    assert EnsueError(message).in_options() == message


OF_THE_COMMAND_LINE = {
    "cli", "console", "command.py", "commands.py", "errors.py", "surveying", "annotation_formats", "serving", "c",
    "programs", "error_analysis", "report.py", "__init__.py", "detection",
}  # fmt: skip
"""Folders and files whose texts with options are printed by commands alone."""
ONLY_OPTIONS = {"beams", "column", "json", "processes", "shard", "labels", "words", "sources", "targets"}
"""Options in messages that have no argument in Python, or that a `DataError` has for `ensue data` alone."""


def message_literals(path: Path) -> Iterator[str]:
    """The strings of a module except docstrings; values inside are X."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text if re.search(r"[^-]--[a-z]", text) else "")
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    pieces |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(piece.value if isinstance(piece, ast.Constant) else "X" for piece in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.value


def test_no_message_names_an_option_in_python() -> None:
    files = [path for path in SOURCE.rglob("*.py") if not OF_THE_COMMAND_LINE & {*path.relative_to(SOURCE).parts}]
    option = re.compile(r"(?<![\w-])--(?!set (?:X|$))([a-z][\w-]*)")  # "--set X": the name of the key is a value
    messages = [text for path in files for text in message_literals(path) if " " in text and option.search(text)]
    assert len(messages) > 50
    for message in messages:
        text = re.split(r"(?=\bensue [a-z]|$)", str(EnsueError(message)), maxsplit=1)[0]
        assert {*option.findall(text)} <= ONLY_OPTIONS, text
