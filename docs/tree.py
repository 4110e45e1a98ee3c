"""The tree in docs/architecture.md, from the first lines of the files; `python docs/tree.py` brings it up to date.

A test fails where the page is not what this would write.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "architecture.md"
BEGIN, END = "<!-- written by tree.py -->\n", "<!-- end of the tree -->"
WIDTH, COLUMN = 120, 30
SUFFIXES = (".py", ".c", ".h", ".js", ".css", ".html")

FLOORS = (
    "text", "data", "engine", "nn", "models", "decode", "metrics", "recipe", "recipes", "runs", "tasks", "training",
    "exchange", "search", "trackers", "inspection", "console", "cli",
)  # fmt: skip
"""The packages from the ground up."""

NOTES = {
    "src/ensue/recipes": "The recipes that come with the package.",
    "src/ensue/inspection/libraries": "Libraries of others, with their licenses: uPlot 1.6.32, which draws curves.",
    "src/ensue/exchange/onnx/programs": "The programs that are written beside exported graphs.",
    "tests": "The tests; each folder has those of the package of that name, but for these.",
    "tests/laws": "Every layer and every law, and planted bugs that each law has to catch.",
    "tests/fuzz": "Odd data, recipes, runs and command lines, by seed and number.",
    "benchmarks": "The commands behind the measured numbers.",
    "docs": "These pages, for Sphinx with MyST and furo.",
    ".ci/run": "What has to pass before a change lands.",
    "Makefile": "The commands of the house: make quickstart, test, slow, check, docs, bench.",
    "pyproject.toml": "The package and its dependencies.",
    "constraints.txt": "The versions that make and CI install.",
}
"""What is said of files and folders that say nothing of themselves."""


def tree() -> str:
    lines = ["src/ensue/", *entries(REPOSITORY / "src" / "ensue", 1)]
    lines += [
        line(name, 0, folder=(REPOSITORY / name).is_dir(), text=NOTES[name]) for name in NOTES if "src" not in name
    ]
    return "".join(f"{entry}\n" for entry in lines)


def entries(folder: Path, depth: int) -> list[str]:
    """The files of a folder, and its folders with theirs, each on a line."""
    if folder.name == "libraries":
        return []
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name != "__init__.py")
    lines = [line(path.name, depth, folder=False, text=said(path)) for path in found]
    for path in sorted((path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"), key=order):
        lines += [line(path.name, depth, folder=True, text=said(path / "__init__.py")), *entries(path, depth + 1)]
    return lines


def order(folder: Path) -> tuple[int, str]:
    return (FLOORS.index(folder.name) if folder.name in FLOORS else len(FLOORS), folder.name)


def said(path: Path) -> str:
    """The first sentence of a file's docstring, or of its first comment."""
    name = path.relative_to(REPOSITORY).as_posix().removesuffix("/__init__.py")
    if name in NOTES or not path.exists():
        return NOTES.get(name, "")
    text = path.read_text(encoding="utf-8")
    text = docstring(text) if path.suffix == ".py" else re.sub(r"^\s*(?:/\*+|//|\{#)\s*", "", text)
    return re.split(r"(?<=\.)\s|\n", text, maxsplit=1)[0]


def docstring(text: str) -> str:
    """The docstring of a module, without parsing what follows it; "" if it does not begin with one."""
    found = re.match(r'r?"""(?:[^"\\]|\\.|"(?!""))*"""', text)
    return ast.get_docstring(ast.parse(found[0])) or "" if found else ""


def line(name: str, depth: int, *, folder: bool, text: str) -> str:
    """A name with what is said of it; of what is too long the parts that fit, without what stands in parentheses."""
    head = f"{'  ' * depth}{name}{'/' * folder}".ljust(COLUMN) + " "
    room, text = WIDTH - len(head), text.rstrip(".")
    if len(text) > room:
        whole, parenthesis, _ = text[:room].partition(" (")
        ends = [re.match(rf"(.+){end}", whole) for end in (r"[:;] ", ", ", "$" if parenthesis else r" \S*$")]
        text = next(found[1] for found in ends if found)
    return (head + text).rstrip()


def written(page: str) -> str:
    """The page with the tree as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE.name} has no place for the tree"
    return f"{before}{BEGIN}\n```text\n{tree()}```\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
