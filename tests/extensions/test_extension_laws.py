"""Laws: the core neither imports nor names an extension, and each extension can be removed with its dependents."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import pytest

from ensue.extension import extensions
from source_imports import SOURCE, compiled, imports, modules, strings

FOLDER = SOURCE / "ensue" / "extensions"
TESTS = Path(__file__).parents[1]
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
LAZY_MODULES = {"ensue"}
"""The public module of the package: it imports names of extensions only for type checkers."""


def extension_of(module: str) -> str:
    """Return the extension of a module; "" for a module of the core."""
    return module.split(".")[2] if module.startswith("ensue.extensions.") else ""


@cache
def extensions_in_the_core() -> set[tuple[str, str]]:
    """Return modules of the core with the extensions that they import or name in a string."""
    edges = {
        (edge.importer, extension_of(edge.imported))
        for edge in imports(SOURCE)
        if not extension_of(edge.importer) and (edge.at_runtime or edge.importer not in LAZY_MODULES)
    }
    for name, path in modules(SOURCE).items():
        if not extension_of(name) and "extensions" in path.read_text(encoding="utf-8"):
            edges |= {(name, extension) for extension in named_extensions(compiled(path))}
    return {(module, extension) for module, extension in edges if extension}


def named_extensions(code: CodeType) -> Iterator[str]:
    """Yield the extensions whose modules or templates occur in strings of a module."""
    for text in strings(code):
        yield from re.findall(r"\bextensions[./](\w+)", text)


def test_the_core_neither_imports_nor_names_an_extension() -> None:
    assert sorted(extensions_in_the_core()) == []


@pytest.mark.parametrize("line", ['PLACE = "ensue.extensions.serving.api:routes"', 'T = "extensions/frames/page.html"'])
def test_a_string_with_a_module_or_file_of_an_extension_names_it(line: str) -> None:
    assert len(list(named_extensions(compile(line, "words.py", "exec")))) == 1


def test_extensions_import_exactly_the_extensions_they_declare() -> None:
    undeclared = {
        (edge.importer, extension_of(edge.imported))
        for edge in imports(SOURCE)
        if (importer_extension := extension_of(edge.importer))
        and (imported_extension := extension_of(edge.imported))
        and importer_extension != imported_extension
        and imported_extension not in extensions()[importer_extension].needs
    }
    assert undeclared == set()
    used = {(extension_of(edge.importer), extension_of(edge.imported)) for edge in imports(SOURCE)}
    assert {(name, need) for name in NAMES for need in extensions()[name].needs} <= used


def test_each_folder_declares_the_extension_of_its_name() -> None:
    assert [extensions()[name].name for name in NAMES] == NAMES
    assert {need for name in NAMES for need in extensions()[name].needs} <= {*NAMES}


WITHOUT = """
import importlib, json, os, sys, traceback
import typer.rich_utils, tomllib, tempfile, difflib, secrets, gzip, lzma, platform  # once for all
sys.path.insert(0, {tests!r})
sys.pycache_prefix, sys.dont_write_bytecode = {cache!r}, False

def check(hidden, left, expected):
    from without_extensions import hide
    hide(hidden)
    for name in left:
        importlib.import_module("ensue.extensions." + name)
    from ensue.cli.program import command_line, commands
    assert set(expected) <= set(commands()), set(commands())
    sys.argv = ["ensue", "--help"]
    command_line()(["--help"], standalone_mode=False)

for case in json.load(sys.stdin):
    assert not [name for name in sys.modules if name.startswith("ensue")]
    if os.fork() == 0:
        try:
            check(*case)
            print("done", flush=True)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    print(chr(0), flush=True)
"""
"""Print the help without some extensions, and then "done", for each case on standard input."""


def extension_and_dependents(name: str) -> list[str]:
    """Return an extension and the extensions that need it."""
    hidden = [name]
    for each in hidden:
        hidden += [other for other in NAMES if each in extensions()[other].needs and other not in hidden]
    return hidden


def commands_of(names: list[str]) -> set[str]:
    return {command for name in names for command in extensions()[name].commands}


@pytest.fixture(scope="module")
def help_texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of `ensue --help` without an extension and its dependents, by extension."""
    cases = []
    for hidden in map(extension_and_dependents, NAMES):
        left = [each for each in NAMES if each not in hidden]
        cases.append((hidden, left, sorted(commands_of(left))))
    command = [sys.executable, "-c", WITHOUT.format(tests=str(TESTS), cache=str(tmp_path_factory.mktemp("compiled")))]
    output = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True).stdout
    return dict(zip(NAMES, output.split("\0\n"), strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_without_an_extension_the_others_are_imported_and_listed(name: str, help_texts: dict[str, str]) -> None:
    hidden, output = extension_and_dependents(name), help_texts[name]
    assert output.endswith("done\n"), output[-2000:]
    assert all(f"\n  {command} " in output for command in commands_of([each for each in NAMES if each not in hidden]))
    assert not any(f"\n  {command} " in output for command in commands_of(hidden))


CORE = (
    "tasks/test_framing.py", "tasks/test_nothing_to_score.py", "text", "decode", "data/detection", "data/examples",
    "models/test_tagger.py", "cli/test_commands.py", "test_labeling_pipeline.py", "test_classification_pipeline.py",
    "test_pipeline.py", "test_sequence_pipeline.py",
)  # fmt: skip
"""Tests of the core."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_an_extension_tests_of_the_core_pass(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "ENSUE_TEST"))}
    environment["ENSUE_TEST_WITHOUT"] = ",".join(extension_and_dependents(name))
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *(str(TESTS / each) for each in CORE)]
    finished = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:]
