"""Compilation of C code by the machine's C compiler, with a cache on disk, and loading with ctypes.

Compiling a cell takes about a second, once on each machine. Without a compiler the engine runs its passes in torch
operations; `pip install ziglang` installs a compiler. `ensue.private_folder` checks libraries before they are loaded.
"""

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

from ensue.cache import cells_directory, make_room, temporary_directory
from ensue.notices import warn_once
from ensue.private_folder import PrivateFolder, private_folder
from ensue.processor import features
from ensue.version import package_file, package_text

COMPILERS = ("cc", "gcc", "clang", "ziglang")
"""Commands, and the Python package ziglang. On Windows the order is reversed, since gcc has a bug (`flags_for`)."""
HEADERS = ("kernels.h", "functions.h", "loop.h")
FLAGS = (
    "-O3", "-std=gnu11", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-shared", "-fPIC",
)  # fmt: skip
MAX_COMPILE_SECONDS = 120
"""The time limit of the compiler for one cell."""

_compiling = Lock()


class CompilerFailed(Exception):
    """A failure of the compiler; the message has the first error that the compiler prints."""


@cache
def compiler() -> tuple[str, ...] | None:
    """Return the command of a C compiler: `$CC`, which may have arguments, or the first installed of `COMPILERS`."""
    requested = os.environ.get("CC", "").strip()
    names = COMPILERS[::-1] if platform.system() == "Windows" else COMPILERS
    command = next(filter(None, map(_command, (requested, *names))), None)
    if requested and not _command(requested):
        other = f"{shlex.join(command)} is used" if command else "there is no other compiler"
        warn_once("CC", f"CC={requested}: no such command; {other}")
    return command


def _command(text: str) -> tuple[str, ...] | None:
    """Return the program and arguments of a command, or None if the program is not installed. Paths may have blanks."""
    if text == "ziglang":
        return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None
    with suppress(ValueError):  # an unbalanced quotation mark
        for program, *arguments in filter(None, ([text], shlex.split(text, posix=os.name == "posix"))):
            if path := shutil.which(program.strip('"')):
                return (path, *arguments)
    return None


@cache
def library(text: str, dtype: torch.dtype, defines: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """Return the library compiled from `text` for float32 or float64; None without a compiler or after an error."""
    command = compiler()
    if command is None:
        return None
    options = [*command, *compiler_flags(), f"-DREAL_IS_DOUBLE={int(dtype == torch.float64)}", *defines]
    source = "\n".join([*(package_text(f"engine/{name}") for name in HEADERS), text])
    machine = " ".join(sorted(features())) or platform.platform()  # machines may share a home directory
    key = hashlib.sha256("\0".join([source, *options, machine]).encode()).hexdigest()[:32]
    with _compiling:
        try:
            return _load(key, cache(lambda: _compile(source, options)))
        except (CompilerFailed, OSError) as error:
            warn_once("compiler", f"no compiled cells: {error}; layers run in torch operations, which is slower")
            return None


def fingerprint() -> str:
    """Return a digest of the engine's files, the compiler and its options, which affect the speed of compiled steps."""
    names = sorted(file.name for file in package_file("engine").iterdir() if file.name.endswith((".py", ".h", ".c")))
    texts = [*(package_text(f"engine/{name}") for name in names), *(compiler() or ()), *compiler_flags()]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _load(key: str, make: Callable[[], bytes]) -> ctypes.CDLL:
    """Load the library `key` from the cache; if the cache fails, from a temporary folder, with a notice."""
    try:
        with private_folder(cells_directory()) as folder:
            return _load_from(folder, key, make)
    except OSError as error:
        with private_folder(temporary_directory() / "cells") as folder:
            functions = _load_from(folder, key, make)
        warn_once(
            "cells",
            f"{cells_directory()}: not used for compiled cells ({error.strerror}): every process compiles cells anew",
        )
        return functions


def _load_from(folder: PrivateFolder, key: str, make: Callable[[], bytes]) -> ctypes.CDLL:
    """Load the library `key`, compiled by `make` if it is missing; a library that cannot be loaded is removed."""
    files = folder.find(key, ".so")
    name = files[0] if files else folder.write(key, ".so", make())
    if not files:
        make_room()
    try:
        return ctypes.CDLL(folder.open_path(name))
    except OSError as error:
        folder.remove(name)
        raise OSError(errno.ENOEXEC, str(error)) from error


def _compile(text: str, options: list[str]) -> bytes:
    path = temporary_directory() / f"compiled-{os.getpid()}"  # forked processes share the folder
    command = [*options, "-x", "c", "-", "-o", str(path), *(["-lm"] if "-fPIC" in options else [])]
    try:
        subprocess.run(command, input=text.encode(), capture_output=True, check=True, timeout=MAX_COMPILE_SECONDS)
        return path.read_bytes()
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line] or lines  # gcc prints the name of the function first
        raise CompilerFailed(f"{command[0]} fails ({errors[0] if errors else f'status {error.returncode}'})") from None
    except subprocess.TimeoutExpired:
        raise CompilerFailed(f"{command[0]} takes more than {MAX_COMPILE_SECONDS} seconds") from None
    except OSError as error:
        raise CompilerFailed(f"{command[0]} writes no library ({error.strerror})") from None
    finally:
        path.unlink(missing_ok=True)


def compiler_flags() -> list[str]:
    """Return the compiler's options; the options in `$ENSUE_CFLAGS` come last."""
    system, version = platform.system(), ""
    if system == "Windows" and (command := compiler()):
        version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    flags = flags_for(system, platform.machine(), version, features())
    return [*flags, *os.environ.get("ENSUE_CFLAGS", "").split()]


def flags_for(system: str, machine: str, version: str, features: Collection[str]) -> list[str]:
    """Return the options for a system, a kind of processor and its features, and on Windows a compiler's `version`.

    gcc prefers vectors of 256 bits even if the processor has longer vectors. Apple's clang selects an ARM processor by
    `-mcpu` alone. clang refuses `-fPIC` with Microsoft's libraries. gcc on Windows assumes a stack aligned to 32 bytes,
    but Windows aligns it to 16 (PR 54412), so AVX would crash the process.
    """
    flags, is_x86 = list(FLAGS), machine.lower() in ("amd64", "x86_64")
    if (system, machine) == ("Darwin", "arm64"):
        flags[flags.index("-march=native")] = "-mcpu=native"
    if "windows-msvc" in version:
        flags.remove("-fPIC")
    if system == "Windows" and "clang" not in version:
        return [*flags, *["-mno-avx"] * is_x86]
    return [*flags, *["-mprefer-vector-width=512"] * (is_x86 and "avx512f" in features)]
