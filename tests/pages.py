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
"""Pages whose packages must be installed or files be written first. tests/cli/test_adding_a_task.py,
tests/test_extending.py, tests/extensions/hub/test_packing.py and tests/test_journeys.py run them."""


class Block(NamedTuple):
    """A fenced block of a page: its language, the number of its first line, and its text."""

    language: str
    line: int
    text: str


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """Yield the blocks of a page in one of these languages, including blocks in lists."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", text, re.MULTILINE):
        if match[2] in languages:
            yield Block(match[2], text.count("\n", 0, match.start(3)) + 1, textwrap.dedent(match[3]))


def prose(page: Path) -> str:
    """Return the text of a page without its blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def pages(*languages: str, quick: Collection[str] | None = None) -> Any:
    """Parametrize a test with the pages that have a block in these languages. All but those in `quick` are slow."""
    chosen = [page for page in PAGES if name_of(page) not in TESTED_ELSEWHERE and any(blocks(page, *languages))]
    slow = [page for page in chosen if quick is not None and name_of(page) not in quick]
    cases = [pytest.param(page, marks=[pytest.mark.slow] if page in slow else [], id=name_of(page)) for page in chosen]
    return pytest.mark.parametrize("page", cases)


def first_cells(page: Path, head: str) -> list[str]:
    """Return the code in backticks in the first column of all tables whose first column has the heading `head`."""
    text = page.read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        name for table in tables for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    ]


def sentences(page: Path) -> list[str]:
    """Return the sentences of a page, without blocks, tables, formulas and headings; inline code counts as one word."""
    text = re.sub(r"\$\$.*?\$\$", "", prose(page), flags=re.DOTALL)
    text = re.sub(r"(?s)(`+)(?!`).+?(?<!`)\1(?!`)", "Code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text))
    text = re.sub(r"\$[^$]+\$", "formula", text)
    text = re.sub(r"^(\||#|!|<|:).*$", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    end = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z])")
    return [sentence for part in parts for sentence in end.split(part) if sentence.strip()]


def words_of(sentence: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.,-]*", sentence))


DIRECTIVE = re.compile(r"^\.\. auto(?:class|function):: ([\w.]+)\n((?: .*\n)*)", re.MULTILINE)


def public(page: Path = API_PAGE) -> dict[str, list[str]]:
    """Return the functions and classes that the API page lists, each with the members listed."""
    text = "".join(block.text for block in blocks(page, "{eval-rst}"))
    return {path: re.findall(r"\w+", options.replace(":members:", "")) for path, options in DIRECTIVE.findall(text)}


def named(path: str) -> Any:
    """Return the object at a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
