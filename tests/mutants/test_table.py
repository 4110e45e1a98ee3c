"""Each mutant of the table is killed by default tests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutants.table import TABLE, OneLine
from pages import REPOSITORY

PACKAGE = REPOSITORY / "src" / "ensue"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the package, in which mutants are written."""
    folder = tmp_path_factory.mktemp("mutants") / "src"
    shutil.copytree(PACKAGE, folder / "ensue", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("mutant", TABLE.values(), ids=TABLE)
def test_the_line_occurs_once(mutant: OneLine) -> None:
    assert (PACKAGE / mutant.path).read_text(encoding="utf-8").count(mutant.before) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mutant", TABLE.values(), ids=TABLE)
def test_default_tests_kill_the_mutant(mutant: OneLine, copy: Path) -> None:
    path = copy / "ensue" / mutant.path
    text = path.read_text(encoding="utf-8")
    tests = [str(REPOSITORY / "tests" / name) for name in mutant.tests.split()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ENSUE_TEST"))}
    environment["PYTHONPATH"] = str(copy)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests]
    try:
        path.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
        result = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    finally:
        path.write_text(text, encoding="utf-8")
    assert result.returncode == 1, result.stdout[-1000:] + result.stderr[-1000:]
