"""The messages of errors for users, read from the source: what varies in them is an ellipsis."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pages import REPOSITORY

SOURCE = REPOSITORY / "src" / "ensue"
GAP = "…"


class Message(NamedTuple):
    """A message, the name of its error, and the file that raises it, from the package on."""

    text: str
    kind: str
    file: str


def texts(node: ast.expr) -> list[str]:
    """What an expression may say."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return joined([["".join(texts(part))] if isinstance(part, ast.Constant) else [GAP] for part in parts])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return joined([texts(left), texts(right)])
        case ast.IfExp(body=body, orelse=otherwise):
            return [*texts(body), *texts(otherwise)]
    return [GAP]


def joined(parts: list[list[str]]) -> list[str]:
    found = [""]
    for part in parts:
        found = [before + text for before in found for text in part]
    return [plain(text) for text in found]


def plain(text: str) -> str:
    """A message in which gaps side by side are one."""
    while GAP * 2 in text:
        text = text.replace(GAP * 2, GAP)
    return text


def is_telling(text: str) -> bool:
    """Whether a message has words of its own."""
    return sum(map(str.isalpha, text)) > 5


@cache
def sources() -> dict[str, str]:
    """The code of each file of the package."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse(sources()[file])


@cache
def kinds() -> dict[str, ast.ClassDef]:
    """The errors of the package that a user meets, by name."""
    found: dict[str, ast.ClassDef] = {}
    files = ["errors.py", *(file for file, code in sources().items() if re.search(r"^class \w+Error\(", code, re.M))]
    for node in (node for file in files for node in ast.walk(tree_of(file))):
        bases = {base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name)}
        if isinstance(node, ast.ClassDef) and (node.name == "EnsueError" or bases & found.keys()):
            found[node.name] = node
    return found


def messages(parts: tuple[str, ...]) -> Iterator[Message]:
    """The messages that are written where their error is raised, in files whose paths begin with one of these."""
    for file, code in sources().items():
        if file.startswith(parts) and "Error(" in code:
            yield from messages_of(SOURCE / file)


def messages_of(path: Path) -> Iterator[Message]:
    file = path.relative_to(SOURCE).as_posix()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds() and node.args:
            yield from (Message(text, node.func.id, file) for text in texts(node.args[0]) if is_telling(text))


@cache
def texts_of(file: str) -> frozenset[str]:
    """All that the expressions of a file may say."""
    nodes = (node for node in ast.walk(tree_of(file)) if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp))
    return frozenset(text for node in nodes for text in texts(node))


def said(message: str) -> bool:
    """Whether some expression of the source says this, raised or not."""
    words = [word for word in re.findall(r"\w+", message) if word.isascii()]
    files = [file for file, code in sources().items() if all(word in code for word in words)]
    longest = max(message.split(GAP), key=len)
    return any(message in texts_of(file) for file in sorted(files, key=lambda file: longest not in sources()[file]))


def quoted(text: str) -> list[str]:
    """The messages of a page or a part of it: each is an item of its list, in code."""
    return [found[1].strip() for found in re.findall(r"^- (`+)(.+)\1$", text, re.MULTILINE)]
