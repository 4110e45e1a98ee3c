"""Messages of errors."""

import pytest

from ensue.errors import LONGEST, DataError, EnsueError, RecipeError


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
