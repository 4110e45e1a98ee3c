"""Docstrings: each public definition has one, perhaps from a base class, and begins with a noun or a verb."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PUBLIC_PACKAGES = [
    "ensue.decode", "ensue.errors", "ensue.inspection", "ensue.library", "ensue.metrics", "ensue.models", "ensue.nn",
    "ensue.recipe", "ensue.text", "ensue.types",
]  # fmt: skip
"""The packages from which users import layers, models, tokenizers, scores and recipes."""
SOURCE = Path(__file__).resolve().parents[1] / "src"


def modules(name: str) -> Iterator[ModuleType]:
    """Yield a module and, if it is a package, all modules in it."""
    module = importlib.import_module(name)
    yield module
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"{name}."):
        yield importlib.import_module(info.name)


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield the public classes, functions, methods and properties of a module that have no docstring."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            if not has_text(value):
                yield name
            yield from (f"{name}.{member}" for member in vars(value) if lacks_text(value, member))
        elif inspect.isfunction(value) and not value.__doc__:
            yield name


def has_text(kind: type[Any]) -> bool:
    """Return whether a class has a docstring other than the signature that a dataclass or named tuple gets."""
    text = vars(kind).get("__doc__") or ""
    return bool(text) and not text.startswith(f"{kind.__name__}(")


def lacks_text(kind: type[Any], name: str) -> bool:
    """Return whether a public method or property has no docstring in the class or in its bases of the package."""
    member = vars(kind)[name]
    is_method = inspect.isfunction(member) or isinstance(
        member, property | cached_property | classmethod | staticmethod
    )
    if name.startswith("_") or name == "extra_repr" or not is_method:  # torch documents extra_repr
        return False
    ours = [vars(base)[name] for base in kind.__mro__ if name in vars(base) and base.__module__.startswith("ensue")]
    return not any(definition.__doc__ for definition in ours)


@pytest.mark.parametrize("package", PUBLIC_PACKAGES)
def test_public_definitions_have_docstrings(package: str) -> None:
    assert [f"{module.__name__}.{name}" for module in modules(package) for name in undocumented(module)] == []


def test_a_missing_docstring_is_detected() -> None:
    class Bare:
        def method(self) -> None: ...

        @property
        def value(self) -> int:
            """Something."""
            return 1

    class Derived(Bare):
        """A class."""

        @property
        def value(self) -> int:
            return 2

    module = ModuleType("bare")
    for kind in (Bare, Derived):
        kind.__module__ = "ensue.bare"
    vars(module).update({"Bare": Bare, "Derived": Derived, "__name__": "ensue.bare"})
    assert list(undocumented(module)) == ["Bare", "Bare.method"]


def unclear_docstrings(source: str) -> list[str]:
    """Return docstrings, also of attributes, whose first words are neither a noun nor a verb."""
    return re.findall(r'^ *r?"""\s*((?:What|Those|The same)\b.*)', source, re.MULTILINE)


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    lines_by_file = {str(path): unclear_docstrings(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in lines_by_file.items() if lines} == {}


def test_an_unclear_docstring_is_detected() -> None:
    source = (
        '"""What it is."""\nclass B:\n    """The same."""\n    c = 1\n    """\n    Those."""\n    d = """What else"""\n'
    )
    assert unclear_docstrings(source) == ['What it is."""', 'The same."""', 'Those."""']
