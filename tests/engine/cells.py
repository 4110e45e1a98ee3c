"""Compilers that are scripts, and functions to inspect compiled libraries."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ensue.engine import c_library, execution
from ensue.notices import Notice

TEXT = "real twice(real x) { return 2 * x; }\n"
Library = Callable[..., ctypes.CDLL | None]


def with_compiler(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...] | None) -> None:
    for module in (c_library, execution):
        monkeypatch.setattr(module, "compiler", lambda: command)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def libraries(cache_directory: Path) -> list[Path]:
    """Return all files in the cache, also partial ones."""
    return sorted(path for path in cache_directory.rglob("*") if path.is_file())


def twice(library: ctypes.CDLL | None) -> float:
    assert library is not None
    library.twice.argtypes, library.twice.restype = [ctypes.c_double], ctypes.c_double
    return float(library.twice(2.25))


@contextmanager
def notice() -> Iterator[list[str]]:
    """Yield a list that has the single notice of the block after its end."""
    lines: list[str] = []
    with pytest.warns(Notice) as caught:
        yield lines
    lines += [str(warning.message) for warning in caught]
    assert len(lines) == 1, lines
