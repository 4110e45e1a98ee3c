"""The benchmarks use names and arguments that the package has. No test runs the benchmarks."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from pages import REPOSITORY

FOLDER = REPOSITORY / "benchmarks"
MYPY = f"""
[mypy]
mypy_path = {REPOSITORY / "src"}:{FOLDER}
ignore_missing_imports = true
follow_imports = silent
check_untyped_defs = true
"""


def missing_names(source: str) -> list[str]:
    """Return the names that a script imports from modules of ensue without these names."""
    imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    names = [(node.module or "", alias.name) for node in imports for alias in node.names]
    return [f"{module}.{name}" for module, name in names if module.startswith("ensue.") and not has(module, name)]


def has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ImportError:
        return False


def test_the_names_that_benchmarks_import_exist() -> None:
    scripts = sorted(FOLDER.glob("*.py"))
    missing = {path.name: missing_names(path.read_text(encoding="utf-8")) for path in scripts}
    assert {name: names for name, names in missing.items() if names} == {}
    assert len(scripts) > 40
    assert missing_names("from ensue.nn import LSTM, Missing\nfrom ensue.gone import LSTM") == [
        "ensue.nn.Missing", "ensue.gone.LSTM",
    ]  # fmt: skip


def type_errors(folder: Path, *scripts: Path) -> list[str]:
    """Return the errors of mypy about attributes and arguments that do not exist."""
    configuration = folder / "mypy.ini"
    configuration.write_text(f"{MYPY}cache_dir = {folder / 'cache'}\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", configuration, *scripts]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert "Found" in output or "Success" in output, output
    return [line for line in output.splitlines() if line.endswith(("[attr-defined]", "[call-arg]"))]


@pytest.mark.slow
def test_the_attributes_and_arguments_that_benchmarks_use_exist(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    outdated = tmp_path / "outdated.py"
    outdated.write_text("from ensue.data.mapped_file import TokenHeader\nTokenHeader(2, 0, 1, 0, 1, 2).gone\n")
    scripts = [path for path in FOLDER.glob("*.py") if path.name != "inspector.py"]  # a module of a package
    errors = type_errors(tmp_path, outdated, *sorted(scripts))
    assert [error for error in errors if "outdated.py" not in error] == []
    assert len(errors) == 2
