"""Exported programs compile for other systems. `test_same_numbers` runs them on 64-bit ARM and in WebAssembly."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from extensions.exporting.c.carried import NUMBERS, STRICT, put
from extensions.exporting.c.every_model import MODELS
from other_processors import ZIG


@pytest.mark.slow
@pytest.mark.skipif(not ZIG, reason="no zig (pip install --target build/ziglang ziglang)")
@pytest.mark.parametrize("kind", ["characters", "tagger", "classifier", "transducer", "frames"])
@pytest.mark.parametrize("target", ["x86_64-windows-gnu", "aarch64-macos"])
def test_windows_and_macos_compile_every_task(
    target: str, kind: str, tmp_path: Path, kept_folder: Callable[[str], Path]
) -> None:
    files, _ = MODELS[kind]("f32")
    environment = os.environ | dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(kept_folder("zig")))
    put(files, tmp_path)
    for file in ("some.c", "example.c"):
        command = [str(ZIG), "cc", "-target", target, *STRICT, *NUMBERS, "-c", file]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
