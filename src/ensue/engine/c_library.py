"""C text to functions: compiled on first use by the C compiler of the machine, kept in the cache, loaded with ctypes.

A cell takes about a second, once for a machine. Without a compiler the engine runs its passes in torch operations;
`pip install ziglang` installs one. Libraries are checked before they are loaded: see `ensue.private_folder`.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from threading import Lock

import torch

from ensue.cache import make_room
from ensue.cache_folders import cells_directory, temporary_directory
from ensue.notices import say_once
from ensue.private_folder import PrivateFolder, private_folder
from ensue.processor import features
from ensue.version import package_file, package_text

COMPILERS = ("cc", "gcc", "clang", "ziglang")
"""Commands, and a package of Python. On Windows the last one comes first: `flags_for` says why."""
HEADERS = ("kernels.h", "functions.h", "loop.h")
FLAGS = (
    "-O3", "-std=gnu11", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-shared", "-fPIC",
)  # fmt: skip
SECONDS = 120
"""After which a compiler is given up."""

_alone = Lock()


class CompilerFailed(Exception):
    """With the first line of what it said."""


@cache
def compiler() -> tuple[str, ...] | None:
    """The command of a C compiler: `$CC`, which may have arguments, or the first of `COMPILERS` that is installed."""
    wanted = os.environ.get("CC", "").strip()
    names = COMPILERS[::-1] if platform.system() == "Windows" else COMPILERS
    command = next(filter(None, map(_command, (wanted, *names))), None)
    if wanted and not _command(wanted):
        other = f"{shlex.join(command)} is used" if command else "there is no other compiler"
        say_once("CC", f"CC={wanted}: no such command; {other}")
    return command


def _command(text: str) -> tuple[str, ...] | None:
    """The words of a command whose program is installed; a path may have blanks."""
    if text == "ziglang":
        return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None
    with suppress(ValueError):  # a quotation mark without its other one
        for program, *arguments in filter(None, ([text], shlex.split(text, posix=os.name == "posix"))):
            if path := shutil.which(program.strip('"')):
                return (path, *arguments)
    return None


@cache
def library(text: str, dtype: torch.dtype, defines: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """The compiled `text`, for float32 or float64, with further options; None if that fails.

    Threads may ask at once; a text is compiled by one of them.
    """
    command = compiler()
    if command is None:
        return None
    numbers = [f"-DREAL_IS_DOUBLE={int(dtype == torch.float64)}", *defines]
    options = [*command, *compiler_flags(), *numbers]
    whole = "\n".join([*(package_text(f"engine/{name}") for name in HEADERS), text])
    key = hashlib.sha256("\0".join([whole, *options, _machine()]).encode()).hexdigest()[:32]
    with _alone:
        try:
            return _kept_or_made(key, cache(lambda: _compiled(whole, options)))
        except (CompilerFailed, OSError) as error:
            say_once("compiler", f"no compiled cells: {error}; layers run in torch operations, which is slower")
            return None


def fingerprint() -> str:
    """A digest of what decides how fast compiled steps are: the engine's files, the compiler, its options."""
    names = sorted(file.name for file in package_file("engine").iterdir() if file.name.endswith((".py", ".h", ".c")))
    parts = [*(package_text(f"engine/{name}") for name in names), *(compiler() or ()), *compiler_flags()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _kept_or_made(key: str, make: Callable[[], bytes]) -> ctypes.CDLL:
    """From the folder of cells; where that cannot be used, from one of this process, which is said."""
    try:
        with private_folder(cells_directory()) as folder:
            return _loaded(folder, key, make)
    except OSError as error:
        kept = cells_directory()
        with private_folder(temporary_directory() / "cells") as folder:
            found = _loaded(folder, key, make)
        say_once("cells", f"{kept}: not used for compiled cells ({error.strerror}): every process compiles its own")
        return found


def _loaded(folder: PrivateFolder, key: str, make: Callable[[], bytes]) -> ctypes.CDLL:
    """The library under `key`, made if it is not there; one that cannot be loaded is not kept."""
    found = folder.find(key, ".so")
    name = found[0] if found else folder.keep(key, ".so", make())
    if not found:
        make_room()
    try:
        return ctypes.CDLL(folder.way(name))
    except OSError as error:
        folder.remove(name)
        raise OSError(errno.ENOEXEC, str(error)) from error


def _compiled(text: str, options: list[str]) -> bytes:
    """The library of a text, or `CompilerFailed`."""
    path = temporary_directory() / f"compiled-{os.getpid()}"  # forks have the same folder
    libraries = ["-lm"] if "-fPIC" in options else []
    command = [*options, "-x", "c", "-", "-o", str(path), *libraries]
    try:
        subprocess.run(command, input=text.encode(), capture_output=True, check=True, timeout=SECONDS)
        return path.read_bytes()
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode(errors="replace").splitlines() if line.strip()]
        said = [line for line in lines if "error" in line] or lines  # gcc begins with the name of the function
        raise CompilerFailed(f"{command[0]} fails ({said[0] if said else f'status {error.returncode}'})") from None
    except subprocess.TimeoutExpired:
        raise CompilerFailed(f"{command[0]} takes more than {SECONDS} seconds") from None
    except OSError as error:
        raise CompilerFailed(f"{command[0]} makes nothing ({error.strerror})") from None
    finally:
        path.unlink(missing_ok=True)


def compiler_flags() -> list[str]:
    """The options; `$ENSUE_CFLAGS` has the last word."""
    system, version = platform.system(), ""
    if system == "Windows" and (command := compiler()):
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    flags = flags_for(system, platform.machine(), version, features())
    return [*flags, *os.environ.get("ENSUE_CFLAGS", "").split()]


def flags_for(system: str, machine: str, version: str, features: Collection[str]) -> list[str]:
    """The options on a system and kind of processor with these `features`; on Windows `version` is the compiler's.

    gcc prefers vectors of 256 bits even where there are longer ones. Apple's clang knows an ARM by `-mcpu` alone. With
    Microsoft's libraries clang refuses `-fPIC`. gcc on Windows expects a stack aligned to 32 bytes and gets one aligned
    to 16 (PR 54412), so that longer vectors would end the process.
    """
    flags, is_x86 = list(FLAGS), machine.lower() in ("amd64", "x86_64")
    if (system, machine) == ("Darwin", "arm64"):
        flags[flags.index("-march=native")] = "-mcpu=native"
    if "windows-msvc" in version:
        flags.remove("-fPIC")
    if system == "Windows" and "clang" not in version:
        return [*flags, *["-mno-avx"] * is_x86]
    return [*flags, *["-mprefer-vector-width=512"] * (is_x86 and "avx512f" in features)]


def _machine() -> str:
    """The features of the processor that code may use; several machines may share a home directory."""
    return " ".join(sorted(features())) or platform.platform()
