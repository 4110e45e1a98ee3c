"""Cross-compilers for 64-bit ARM, and the emulator that runs their programs."""

import os
import shutil

from conftest import REPOSITORY

ZIG = shutil.which("zig") or shutil.which("zig", path=REPOSITORY / "build" / "ziglang" / "ziglang")
QEMU = shutil.which("qemu-aarch64")
_GCC = sorted({
    name for folder in os.get_exec_path() if os.path.isdir(folder) for name in os.listdir(folder)
    if name.startswith("aarch64-linux-gnu-gcc") and name.removeprefix("aarch64-linux-gnu-gcc").strip("-").isdigit()
})  # fmt: skip
ARM_COMPILERS: dict[str, tuple[str, ...]] = {name: (name,) for name in _GCC}
"""Debian's versions of gcc, and zig: the command of each by its name."""
if ZIG:
    ARM_COMPILERS["zig"] = (ZIG, "cc", "-target", "aarch64-linux-musl")
