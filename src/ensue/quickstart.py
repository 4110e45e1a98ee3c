"""The training text and the run directory of `ensue quickstart`. The text is documentation installed with Python."""

import ast
import hashlib
import importlib
from pathlib import Path

from ensue.cache import write_cached

MIN_CHARACTERS = 200_000
"""The minimum length of the documentation topics; a shorter text trains a poor model."""


def default_run() -> Path:
    """Return the first path among `quickstart`, `quickstart-2`, ... that does not exist."""
    number = 1
    while (path := Path("quickstart" if number == 1 else f"quickstart-{number}")).exists():
        number += 1
    return path


def python_text() -> tuple[Path, str]:
    """Return a file with the documentation topics of `pydoc` or with docstrings, and a description of its origin."""
    text, origin = _read_topics(), "the documentation topics of `pydoc`"
    if len(text) < MIN_CHARACTERS:
        text, origin = _read_docstrings(), "the docstrings of its standard library"
    content = text.encode()
    name = f"ensue-python-{hashlib.sha256(content).hexdigest()[:8]}.txt"
    return write_cached(name, lambda path: path.write_bytes(content)), origin


def _read_topics() -> str:
    """Return the articles of `pydoc` about the language; "" if Python is installed without them."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return ""
    return "\n\n".join(topics[name] for name in sorted(topics))


def _read_docstrings() -> str:
    """Return the docstrings of the standard library's modules, read without importing them."""
    folder = Path(ast.__file__).parent
    docstrings: list[str] = []
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
        docstrings += filter(None, map(ast.get_docstring, nodes))
    return "\n\n".join(docstrings)
