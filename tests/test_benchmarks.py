"""The benchmarks import names that the package has: no test runs the benchmarks."""

import ast
from importlib import import_module

from pages import REPOSITORY


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
    scripts = sorted((REPOSITORY / "benchmarks").glob("*.py"))
    missing = {path.name: missing_names(path.read_text(encoding="utf-8")) for path in scripts}
    assert {name: names for name, names in missing.items() if names} == {}
    assert len(scripts) > 40
    assert missing_names("from ensue.nn import LSTM, Missing\nfrom ensue.gone import LSTM") == [
        "ensue.nn.Missing", "ensue.gone.LSTM",
    ]  # fmt: skip
