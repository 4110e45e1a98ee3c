"""The part of a file that shows its format: its first lines, or the first values of a JSON array."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

from ensue.data.lines import Lines, text_blocks
from ensue.data.records.record import json_records
from ensue.errors import DataError

_LINES_TO_LOOK_AT = 1000


def first_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """The first lines of a file with their ends, or the first values of an array: those that are complete in the first
    block.
    """
    blocks = text_blocks(path, encoding)
    block = next(blocks, "")
    if values := _values(Lines([block], str(path))):
        return values
    lines = block.split("\n")
    is_whole = next(blocks, None) is None
    whole = [f"{line}\n" for line in lines[:-1]]
    if lines[-1] and (is_whole or not whole):
        whole.append(lines[-1])
    return whole[:_LINES_TO_LOOK_AT]


def _values(lines: Lines) -> list[str]:
    """The first values of a JSON array; none where the lines are no array."""
    lines.split_array()
    found: list[str] = []
    if lines.is_array:
        with suppress(DataError):  # the block may end inside of a value
            found.extend(islice((record.text for record in json_records(lines, is_array=True)), _LINES_TO_LOOK_AT))
    return found
