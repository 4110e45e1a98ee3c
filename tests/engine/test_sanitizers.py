"""The engine's tests pass under AddressSanitizer and UndefinedBehaviorSanitizer, which end a process at a fault."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.engine.c_library import compiler

TESTS = Path(__file__).resolve().parents[1]
FLAGS = "-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
FILES = (
    ("engine/test_engine.py", "engine/test_steps.py", "engine/test_untraceable_steps.py", "engine/test_operations.py"),
    ("engine/test_random_steps.py", "engine/test_memory.py", "engine/test_large_states.py", "engine/test_uses.py",
     "engine/test_kernels.py", "nn/recurrent/test_clockwork.py", "nn/test_border.py", "nn/test_passes.py"),
)  # fmt: skip
"""Files by process, since a process takes seconds to start."""
WRITE_BEHIND_AN_END = """
import ctypes, torch
from ensue.engine.c_library import library
text = "void put(real *to, int64_t place) { to[place] = 1; }"
put = library(text, torch.float32).put
to = torch.zeros(100)
put(ctypes.c_void_p(to.data_ptr()), ctypes.c_int64(99))
print("inside", flush=True)
put(ctypes.c_void_p(to.data_ptr()), ctypes.c_int64(100))
print("outside", flush=True)
"""


def library_of(command: tuple[str, ...], name: str) -> Path | None:
    output = subprocess.run([*command, f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout
    path = Path(output.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process that runs under both sanitizers."""
    command = compiler()
    if command is None or shutil.which(command[0]) is None or len(command) > 1:
        pytest.skip("no C compiler of the system")
    compiler_script = tmp_path_factory.mktemp("compiler") / "cc"  # the sanitizer would double its time
    compiler_script.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {command[0]} "$@"\n')
    compiler_script.chmod(0o700)
    libraries = [library_of(command, name) for name in ("libasan.so", "libstdc++.so")]  # the second for torch's errors
    if None in libraries:
        pytest.skip("the C compiler brings no libasan.so")
    return os.environ | {
        "CC": str(compiler_script),
        "ENSUE_CFLAGS": FLAGS,
        "ENSUE_CACHE": str(tmp_path_factory.mktemp("sanitized")),
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)]),
    }


@pytest.mark.slow
def test_a_write_behind_an_end_is_detected(sanitized: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WRITE_BEHIND_AN_END], env=sanitized, capture_output=True, text=True, check=False
    )
    assert result.stdout == "inside\n", result.stderr
    assert "heap-buffer-overflow" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("names", FILES, ids=["cells", "others"])
def test_the_engine_has_no_fault(names: tuple[str, ...], sanitized: dict[str, str]) -> None:
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--rootdir", str(TESTS.parent),
        *(str(TESTS / name) for name in names),
    ]  # fmt: skip
    result = subprocess.run(command, env=sanitized, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
