"""The laws of extensions: the core knows none, each can be taken away, and a new one touches its folder alone."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from ensue.extension import extensions
from source_imports import SOURCE, imports, modules

FOLDER = SOURCE / "ensue" / "extensions"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
OWN = [name for name in modules(SOURCE) if not name.startswith("ensue.extensions.")]
"""The modules of the core."""
LATE = {"ensue"}
"""The public face of the package: names of extensions stand there for type checkers alone."""

REMAINING: set[tuple[str, str]] = set()
"""Places of the core that still know an extension. The set may only shrink."""


def extension_of(module: str) -> str:
    """The extension that a module belongs to; "" for one of the core."""
    return module.split(".")[2] if module.startswith("ensue.extensions.") else ""


@cache
def known_in_the_core() -> set[tuple[str, str]]:
    """Modules of the core with the extensions that they import, or name in a string."""
    edges = {
        (found.importer, extension_of(found.imported))
        for found in imports(SOURCE)
        if not extension_of(found.importer) and (found.at_use or found.importer not in LATE)
    }
    for name, path in modules(SOURCE).items():
        if not extension_of(name):
            edges |= {(name, extension) for extension in named(path.read_text(encoding="utf-8"), name)}
    return {(module, extension) for module, extension in edges if extension}


def named(text: str, module: str) -> Iterator[str]:
    """The extensions whose modules or templates strings of a module name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\bextensions[./](\w+)", node.value)


def test_the_core_knows_no_extension() -> None:
    assert sorted(known_in_the_core() - REMAINING) == []
    assert sorted(REMAINING - known_in_the_core()) == [], "these know none any more"


@pytest.mark.parametrize("line", ['PLACE = "ensue.extensions.serving.api:routes"', 'T = "extensions/frames/page.html"'])
def test_a_name_in_a_string_is_seen(line: str) -> None:
    assert len(list(named(line, "ensue.text.words"))) == 1


def test_extensions_import_those_that_they_declare() -> None:
    undeclared = {
        (found.importer, extension_of(found.imported))
        for found in imports(SOURCE)
        if (own := extension_of(found.importer))
        and (other := extension_of(found.imported))
        and own != other
        and other not in extensions()[own].needs
    }
    assert undeclared == set()


def test_each_folder_declares_the_extension_of_its_name() -> None:
    assert [extensions()[name].name for name in NAMES] == NAMES
    assert {need for name in NAMES for need in extensions()[name].needs} <= {*NAMES}


HIDDEN = """
import importlib, sys
hidden = {hidden!r}

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in hidden):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

import ensue.extensions
real = list(ensue.extensions.__path__)
sys.meta_path.insert(0, Hidden())
import ensue.extension as declared
modules = declared.iter_modules
declared.iter_modules = lambda path: (each for each in modules(path) if f"ensue.extensions.{{each.name}}" not in hidden)
"""
IMPORTED = """
for name in {names!r}:
    importlib.import_module(name)
"""
HELP = """
from ensue.cli.program import command_line, commands
assert {commands!r} <= set(commands()), set(commands())
sys.argv = ["ensue", "--help"]
command_line()(["--help"], standalone_mode=False)
"""


def without(name: str) -> list[str]:
    """The extension and those that need it."""
    hidden = [name]
    for each in hidden:
        hidden += [other for other in NAMES if each in extensions()[other].needs and other not in hidden]
    return hidden


@pytest.mark.parametrize("name", NAMES)
def test_without_an_extension_all_else_is_imported_and_listed(name: str) -> None:
    hidden = without(name)
    left = [each for each in NAMES if each not in hidden]
    skipped = {module for module, extension in REMAINING if extension in hidden}
    if skipped:
        pytest.skip("the core still knows it")
    names = [f"ensue.extensions.{each}" for each in left]
    commands = {command for each in left for command in extensions()[each].commands}
    program = HIDDEN.format(hidden=[f"ensue.extensions.{each}" for each in hidden])
    program += HELP.format(commands=commands) + IMPORTED.format(names=names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(f"\n  {command} " in done.stdout for command in commands)
    gone = {command for each in hidden for command in extensions()[each].commands}
    assert not any(f"\n  {command} " in done.stdout for command in gone)
