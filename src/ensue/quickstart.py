"""The text and the run directory of `ensue quickstart`: English text that Python carries, and a free name."""

from __future__ import annotations

import ast
import hashlib
import importlib
from pathlib import Path

from ensue.cache import put

ENOUGH_CHARACTERS = 200_000


def default_run() -> Path:
    """`quickstart`, or if it exists `quickstart-2`, ...; no run is ever overwritten."""
    number = 1
    while (path := Path("quickstart" if number == 1 else f"quickstart-{number}")).exists():
        number += 1
    return path


def python_text() -> tuple[Path, str]:
    """A file with the documentation topics of `pydoc` or with the docstrings of the standard
    library, and which it is.
    """
    text, origin = _topics(), "the documentation topics of `pydoc`"
    if len(text) < ENOUGH_CHARACTERS:
        text, origin = _docstrings(), "the docstrings of its standard library"
    content = text.encode()
    name = f"ensue-python-{hashlib.sha256(content).hexdigest()[:8]}.txt"
    return put(name, lambda path: path.write_bytes(content)), origin


def _topics() -> str:
    """Long articles about the language; some distributions leave them out."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return ""
    return "\n\n".join(topics[name] for name in sorted(topics))


def _docstrings() -> str:
    """The docstrings of the standard library's modules, read without importing them."""
    folder = Path(ast.__file__).parent
    parts = []
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        nodes = (n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef))
        parts += [doc for node in nodes if (doc := ast.get_docstring(node))]
    return "\n\n".join(parts)
