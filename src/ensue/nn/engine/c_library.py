"""C text to functions: compiled on first use by the C compiler of the machine, kept in the cache, loaded with ctypes.

A cell takes about a second, once for a machine. Without a compiler there is nothing here, and the engine runs its
passes in torch; `pip install ziglang` is a compiler too.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from ensue.places import cache_directory
from ensue.processor import features

HEADERS = ("kernels.h", "functions.h", "loop.h")
FLAGS = (
    "-O3", "-std=gnu11", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-shared", "-fPIC",
)  # fmt: skip
SECONDS = 120
"""After which a compiler is given up."""


@cache
def compiler() -> tuple[str, ...] | None:
    """The command of a C compiler: `$CC`, cc, gcc, clang, or the one in the package `ziglang`."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return (path,)
    return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None


@cache
def library(text: str, dtype: torch.dtype, defines: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """The compiled `text`, for float32 or float64, with further options; None if that fails."""
    command = compiler()
    if command is None:
        return None
    numbers = [f"-DREAL_IS_DOUBLE={int(dtype == torch.float64)}", *defines]
    options = [*command, *FLAGS, *_for_processor(), *numbers]
    here = Path(__file__).parent
    whole = "\n".join([*((here / name).read_text(encoding="utf-8") for name in HEADERS), text])
    key = hashlib.sha256("\0".join([whole, *options, _machine()]).encode()).hexdigest()[:32]
    path = cache_directory() / "cells" / f"{key}.so"
    for _ in range(2):  # a file that cannot be loaded is damaged, or of another machine after all: once more
        if path.exists() or _compiled(whole, options, path):
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                path.unlink(missing_ok=True)
    return None


def _compiled(text: str, options: list[str], path: Path) -> bool:
    """Whether `path` could be made: written beside and renamed, so that others may do the same at the same time."""
    partial = path.with_suffix(f".{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [*options, "-x", "c", "-", "-o", str(partial), "-lm"],
            input=text.encode(), capture_output=True, check=True, timeout=SECONDS,
        )  # fmt: skip
        partial.replace(path)
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        with suppress(OSError):
            partial.unlink()
    return True


def _for_processor() -> list[str]:
    """gcc prefers vectors of 256 bits even where there are longer ones."""
    return ["-mprefer-vector-width=512"] if "avx512f" in features() else []


def _machine() -> str:
    """What the machine's code may be made of; a home directory may be shared by several machines."""
    return " ".join(sorted(features())) or platform.platform()
