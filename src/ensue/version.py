"""The package itself: its version, and its data files, which may be in a zip archive on `sys.path`."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

VERSION = "0.1.0"


def package_file(name: str) -> Traversable:
    """Return a file or folder of the package, such as `engine/kernels.h`."""
    return files("ensue").joinpath(*name.split("/"))


def package_text(name: str) -> str:
    """Return the text of a file of the package."""
    return package_file(name).read_text(encoding="utf-8")
