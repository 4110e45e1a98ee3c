"""The version and the data files of the package, which may be installed as a zip archive on `sys.path`."""

from importlib.resources import files
from importlib.resources.abc import Traversable

VERSION = "0.1.0"


def package_file(name: str) -> Traversable:
    """Return a file or folder of the package, such as `engine/kernels.h`."""
    return files("ensue").joinpath(*name.split("/"))


def package_text(name: str) -> str:
    """Return the text of a file of the package."""
    return package_file(name).read_text(encoding="utf-8")
