"""Hide folders of ensue.extensions from imports, as if they had been removed."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

PREFIX = "ensue.extensions."


class Hidden:
    """A finder that raises for modules of hidden extensions."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = set(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.startswith(PREFIX) and fullname.split(".")[2] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def hide(names: Sequence[str]) -> None:
    """Hide extensions from the imports of this process and from the list of extensions."""
    extension: Any = import_module("ensue.extension")  # the attribute of the package may be another object
    sys.meta_path.insert(0, Hidden(names))  # type: ignore[arg-type]
    modules = extension.iter_modules
    extension.iter_modules = lambda path: (each for each in modules(path) if each.name not in names)
