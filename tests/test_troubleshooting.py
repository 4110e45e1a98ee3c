"""The entries of docs/troubleshooting.md have a cause and a remedy, and the source has their messages."""

import re
from functools import cache

import pytest

from pages import TROUBLESHOOTING_PAGE
from source_imports import SOURCE, compiled, modules, strings

GAP = "…"
"""The placeholder of the page for text that varies."""


def entries() -> dict[str, str]:
    """Return the text of each entry by its heading."""
    parts = re.split(r"^###? (.+)$", TROUBLESHOOTING_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {head: text for head, text in zip(parts[::2], parts[1::2], strict=True) if messages(text)}


def messages(text: str) -> list[str]:
    """Return the messages in a part of the page: items of a list, in code."""
    return [match[1].strip() for match in re.findall(r"^- (`+)(.+)\1$", text, re.MULTILINE)]


@cache
def strings_of_files() -> list[str]:
    """Return the string literals of each file of the package that names an error, joined by line ends."""
    files = [path for path in modules(SOURCE).values() if b"Error" in path.read_bytes()]
    return ["\n".join(strings(compiled(path))) for path in files]


def is_real(message: str) -> bool:
    """Return whether one file of the package has all constant pieces of a message."""
    pieces = [piece for piece in message.split(GAP) if piece]
    return any(all(piece in strings for piece in pieces) for strings in strings_of_files())


def test_each_message_of_the_page_is_one_of_the_source() -> None:
    listed = [message for text in entries().values() for message in messages(text)]
    assert len(listed) > 20
    assert [message for message in listed if not is_real(message)] == []


def test_each_entry_has_a_cause_and_a_remedy() -> None:
    pattern = re.compile(r"\n\*\*Cause:\*\* .+\n\*\*Remedy:\*\* .+", re.DOTALL)
    assert [head for head, text in entries().items() if not pattern.search(text)] == []


@pytest.mark.parametrize("message", ["…: no such run directories", "no file matched", "expected recipes"])
def test_a_message_that_does_not_exist_is_detected(message: str) -> None:
    assert not is_real(message)
