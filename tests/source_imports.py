"""The imports of the source: who imports whom, on which line, and the circles among them; and its strings."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"


STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""What an import statement can stand in."""


class Import(NamedTuple):
    """That `importer` (a dotted module) imports `imported`, at a line; `at_use` is False under TYPE_CHECKING."""

    importer: str
    imported: str
    line: int
    at_use: bool


def modules(source: Path) -> dict[str, Path]:
    """Every module below `source/ensue` by its dotted name; a package is its `__init__`."""
    found = {}
    for path in sorted((source / "ensue").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(source: Path) -> tuple[Import, ...]:
    return tuple(read_imports(source))


def read_imports(source: Path) -> Iterator[Import]:
    known = modules(source)
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        yield from walk(ast.parse(path.read_text(encoding="utf-8")), name, package, set(known))


def walk(node: ast.AST, name: str, package: str, known: set[str], *, at_use: bool = True) -> Iterator[Import]:
    if isinstance(node, ast.If) and any(getattr(part, "id", "") == "TYPE_CHECKING" for part in ast.walk(node.test)):
        for child in node.body:
            yield from walk(child, name, package, known, at_use=False)
        for child in node.orelse:
            yield from walk(child, name, package, known, at_use=at_use)
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        for target in targets(node, package, known):
            yield Import(name, target, node.lineno, at_use)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, STATEMENTS):
            yield from walk(child, name, package, known, at_use=at_use)


def targets(node: ast.Import | ast.ImportFrom, package: str, known: set[str]) -> list[str]:
    """The modules that a statement names: of `from a import b`, that is a.b if it is a module of ours, a if not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    origin = ".".join([*above, *([node.module] if node.module else [])])
    return [full if (full := f"{origin}.{alias.name}") in known else origin for alias in node.names]


def circles(source: Path, *, annotations: bool = False) -> list[set[str]]:
    """The groups of modules that import each other; with `annotations`, under TYPE_CHECKING too."""
    graph: dict[str, set[str]] = {name: set() for name in modules(source)}
    for found in imports(source):
        if (found.at_use or annotations) and found.imported in graph and found.imported != found.importer:
            graph[found.importer].add(found.imported)
    while ends := {name for name, imported in graph.items() if not imported}:  # what imports nothing is in no circle
        graph = {name: imported - ends for name, imported in graph.items() if name not in ends}
    reached = {name: reach(name, graph) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted((set(group) for group in groups if group), key=min)


def reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    """All that is imported from `start` on; itself only if a way leads back."""
    found: set[str] = set()
    new = graph[start]
    while new:
        found |= new
        new = {name for module in new for name in graph[module]} - found
    return found


@cache
def compiled(path: Path) -> CodeType:
    """The code of a module. Python keeps it in a file; parsing all source takes longer than many a test."""
    return SourceFileLoader(path.stem, str(path)).get_code(path.stem)


def strings(constant: object) -> Iterator[str]:
    """The strings in the code of a module, also inside of its functions."""
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, CodeType | tuple):
        for inner in constant.co_consts if isinstance(constant, CodeType) else constant:
            yield from strings(inner)
