"""The pages of the documentation, their blocks, sentences and tables."""

import importlib
import re
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for path in [*REPOSITORY.glob("*.md"), *(REPOSITORY / ".github").glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    if "_build" not in path.parts
)
README = REPOSITORY / "README.md"
BENCHMARKS_PAGE = REPOSITORY / "docs" / "benchmarks.md"
API_PAGE = REPOSITORY / "docs" / "api.md"
TROUBLESHOOTING_PAGE = REPOSITORY / "docs" / "troubleshooting.md"
RECIPES_PAGE = REPOSITORY / "docs" / "recipes.md"
JOURNEYS = [page for page in PAGES if page.parent == REPOSITORY / "docs" / "journeys"]
TESTED_ELSEWHERE = (
    "docs/adding-a-task.md", "docs/extending.md", "docs/installed-models.md",
    *(f"docs/journeys/{page.name}" for page in JOURNEYS),
)  # fmt: skip
"""What they add has to be installed or written first; tests/cli/test_adding_a_task.py, tests/test_extending.py,
tests/extensions/hub/test_packing.py and tests/test_journeys.py run them."""


class Block(NamedTuple):
    """A fenced block of a page: its language, its first line's number and what is in it."""

    language: str
    line: int
    text: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Those of a page in one of these languages, in a list of steps too."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", text, re.MULTILINE):
        if match[2] in languages:
            yield Block(match[2], text.count("\n", 0, match.start(3)) + 1, textwrap.dedent(match[3]))


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def pages(*languages: str, quick: Collection[str] | None = None) -> Any:
    """The pages that have such a block, as parameters of a test. With `quick`, all but these are slow."""
    found = [page for page in PAGES if name_of(page) not in TESTED_ELSEWHERE and any(blocks(page, *languages))]
    slow = [page for page in found if quick is not None and name_of(page) not in quick]
    cases = [pytest.param(page, marks=[pytest.mark.slow] if page in slow else [], id=name_of(page)) for page in found]
    return pytest.mark.parametrize("page", cases)


def first_cells(page: Path, head: str) -> list[str]:
    """What stands between backticks in the first column of the tables whose first column is called `head`."""
    text = page.read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        name for table in tables for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


def sentences(page: Path) -> list[str]:
    """The sentences of a page, without code, tables, formulas and headings. What stands in backticks is one word."""
    text = re.sub(r"\$\$.*?\$\$", "", prose(page), flags=re.DOTALL)
    text = re.sub(r"(?s)(`+)(?!`).+?(?<!`)\1(?!`)", "Code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"\$[^$]+\$", "formula", text)
    text = re.sub(r"^(\||#|!|<|:).*$", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    return [
        found for part in parts for found in re.split(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z])", part) if found.strip()
    ]


def words_of(sentence: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.,-]*", sentence))


DIRECTIVE = re.compile(r"^\.\. auto(?:class|function):: ([\w.]+)\n((?: .*\n)*)", re.MULTILINE)


def public(page: Path = API_PAGE) -> dict[str, list[str]]:
    """The functions and classes that a page of the interface lists, with the members of each that it lists."""
    text = "".join(block.text for block in blocks(page, "{eval-rst}"))
    return {path: re.findall(r"\w+", options.replace(":members:", "")) for path, options in DIRECTIVE.findall(text)}


def named(path: str) -> Any:
    """The object of such a path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
