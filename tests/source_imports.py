"""The imports of the source with their lines, the import cycles, and the strings of the source."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"


STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""The nodes that can contain an import statement."""


class Import(NamedTuple):
    """An import of the module `imported` in the module `importer`.

    `at_runtime` is False under TYPE_CHECKING. `is_late` is True in a function.
    """

    importer: str
    imported: str
    line: int
    at_runtime: bool
    is_late: bool


def modules(source: Path) -> dict[str, Path]:
    """Return the paths of all modules of `source/ensue` by dotted name; a package has the path of its `__init__`."""
    paths = {}
    for path in sorted((source / "ensue").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def imports(source: Path) -> tuple[Import, ...]:
    return tuple(read_imports(source))


def read_imports(source: Path) -> Iterator[Import]:
    known = modules(source)
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        yield from walk(ast.parse(path.read_text(encoding="utf-8")), name, package, set(known))


def walk(
    node: ast.AST, name: str, package: str, known: set[str], *, at_runtime: bool = True, is_late: bool = False
) -> Iterator[Import]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for target in targets(node, package, known):
            yield Import(name, target, node.lineno, at_runtime, is_late)
    checks_types = isinstance(node, ast.If) and any(
        getattr(part, "id", "") == "TYPE_CHECKING" for part in ast.walk(node.test)
    )
    is_late |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, STATEMENTS):
            used = at_runtime and not (checks_types and child not in node.orelse)
            yield from walk(child, name, package, known, at_runtime=used, is_late=is_late)


def targets(node: ast.Import | ast.ImportFrom, package: str, known: set[str]) -> list[str]:
    """Return the modules that a statement imports: for `from a import b`, a.b if that is in `known`, else a."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    origin = ".".join([*above, *([node.module] if node.module else [])])
    return [full if (full := f"{origin}.{alias.name}") in known else origin for alias in node.names]


def import_cycles(source: Path, *, annotations: bool = False) -> list[set[str]]:
    """Return the groups of modules that import each other; with `annotations`, imports under TYPE_CHECKING count."""
    graph: dict[str, set[str]] = {name: set() for name in modules(source)}
    for edge in imports(source):
        if (edge.at_runtime or annotations) and edge.imported in graph and edge.imported != edge.importer:
            graph[edge.importer].add(edge.imported)
    while ends := {name for name, imported in graph.items() if not imported}:  # these are in no cycle
        graph = {name: imported - ends for name, imported in graph.items() if name not in ends}
    reached = {name: reach(name, graph) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted((set(group) for group in groups if group), key=min)


def reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    """Return all direct and indirect imports of `start`, which include `start` only if it is in a cycle."""
    reached: set[str] = set()
    new = graph[start]
    while new:
        reached |= new
        new = {name for module in new for name in graph[module]} - reached
    return reached


@cache
def compiled(path: Path) -> CodeType:
    """Return the code of a module, cached by Python, since parsing all source takes longer than many tests."""
    return SourceFileLoader(path.stem, str(path)).get_code(path.stem)


def strings(constant: object) -> Iterator[str]:
    """Yield the strings in the code of a module and of its functions."""
    if isinstance(constant, str):
        yield constant
    elif isinstance(constant, CodeType | tuple):
        for inner in constant.co_consts if isinstance(constant, CodeType) else constant:
            yield from strings(inner)
