"""The laws of extensions: the core knows none, each can be taken away, and a new one touches its folder alone."""

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
OWN = [name for name in modules(SOURCE) if not name.startswith("ensue.extensions.")]
"""The modules of the core."""
LATE = {"ensue"}
"""The public face of the package: names of extensions stand there for type checkers alone."""


def extension_of(module: str) -> str:
    """The extension that a module belongs to; "" for one of the core."""
    return module.split(".")[2] if module.startswith("ensue.extensions.") else ""


@cache
def known_in_the_core() -> set[tuple[str, str]]:
    """Modules of the core with the extensions that they import, or name in a string."""
    edges = {
        (found.importer, extension_of(found.imported))
        for found in imports(SOURCE)
        if not extension_of(found.importer) and (found.at_runtime or found.importer not in LATE)
    }
    for name, path in modules(SOURCE).items():
        if not extension_of(name):
            edges |= {(name, extension) for extension in named(compiled(path))}
    return {(module, extension) for module, extension in edges if extension}


def named(code: CodeType) -> Iterator[str]:
    """The extensions whose modules or templates strings of a module name."""
    for text in strings(code):
        yield from re.findall(r"\bextensions[./](\w+)", text)


def test_the_core_knows_no_extension() -> None:
    assert sorted(known_in_the_core()) == []


@pytest.mark.parametrize("line", ['PLACE = "ensue.extensions.serving.api:routes"', 'T = "extensions/frames/page.html"'])
def test_a_name_in_a_string_is_seen(line: str) -> None:
    assert len(list(named(compile(line, "words.py", "exec")))) == 1


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
    used = {(extension_of(found.importer), extension_of(found.imported)) for found in imports(SOURCE)}
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
"""Prints the help without some extensions, and "done" behind it, for each of the cases on standard input."""


def without(name: str) -> list[str]:
    """The extension and those that need it."""
    hidden = [name]
    for each in hidden:
        hidden += [other for other in NAMES if each in extensions()[other].needs and other not in hidden]
    return hidden


def commands_of(names: list[str]) -> set[str]:
    return {command for name in names for command in extensions()[name].commands}


@pytest.fixture(scope="module")
def helps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `ensue --help` prints without an extension and those that need it."""
    cases = []
    for hidden in map(without, NAMES):
        left = [each for each in NAMES if each not in hidden]
        cases.append((hidden, left, sorted(commands_of(left))))
    command = [sys.executable, "-c", WITHOUT.format(tests=str(TESTS), cache=str(tmp_path_factory.mktemp("compiled")))]
    said = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True).stdout
    return dict(zip(NAMES, said.split("\0\n"), strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_without_an_extension_all_else_is_imported_and_listed(name: str, helps: dict[str, str]) -> None:
    hidden, said = without(name), helps[name]
    assert said.endswith("done\n"), said[-2000:]
    assert all(f"\n  {command} " in said for command in commands_of([each for each in NAMES if each not in hidden]))
    assert not any(f"\n  {command} " in said for command in commands_of(hidden))


CORE = (
    "tasks/test_framing.py", "tasks/test_nothing_to_score.py", "text", "decode", "data/detection", "data/examples",
    "models/test_tagger.py", "cli/test_commands.py", "test_labeling_pipeline.py", "test_classification_pipeline.py",
    "test_pipeline.py", "test_sequence_pipeline.py",
)  # fmt: skip
"""Default tests of the core."""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_an_extension_tests_of_the_core_pass(name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "ENSUE_TEST"))}
    environment["ENSUE_TEST_WITHOUT"] = ",".join(without(name))
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *(str(TESTS / each) for each in CORE)]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
