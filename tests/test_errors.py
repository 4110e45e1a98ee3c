"""Messages of errors."""

import pytest

from ensue.errors import DataError, EnsueError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("not JSON", "a\x1b[31m.json", 3), r"a\x1b[31m.json:3: not JSON"),
        (DataError("no rows", "caf\u00e9.tsv"), "caf\u00e9.tsv: no rows"),
        (EnsueError("a\x00b\x7f\x9b\nand a line"), "a\\x00b\\x7f\\x9b\nand a line"),
    ],
)
def test_control_characters_are_escaped(error: EnsueError, message: str) -> None:
    assert str(error) == message
