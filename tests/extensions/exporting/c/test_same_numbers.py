"""An exported model gives the same bits with every compiler, instruction set and processor."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ensue.processor import features
from extensions.exporting.c.carried import COMPILERS, put
from extensions.exporting.c.every_model import FILES, MODELS, Calls
from other_processors import ARM_COMPILERS, QEMU, ZIG

NODE = shutil.which("node")
SAMPLING = "{0, 9, 0.9, 0.02, 1.2}"
"""All filters of sampling; the example sets the temperature."""
EXACT = re.compile(r"%[0-9]*\.[46]f")
FUSED = ("-DFAST", "-ffp-contract=fast")
LEVELS: dict[str, set[str]] = {
    "x86-64": set(), "x86-64-v3": {"avx2", "fma", "bmi2"}, "x86-64-v4": {"avx512f", "avx512bw", "avx512vl"},
}  # fmt: skip
WASI = """
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1", args: ["some", ...process.argv.slice(2)], preopens: { ".": "." } });
const code = await WebAssembly.compile(readFileSync("some.wasm"));
wasi.start(await WebAssembly.instantiate(code, wasi.getImportObject()));
"""


class Build(NamedTuple):
    """A compiler with its options, and the command that runs its programs, such as an emulator."""

    command: tuple[str, ...]
    before: tuple[str, ...] = ()
    program: str = "some"


def builds() -> Iterator[tuple[str, Build]]:
    """All that this machine has: first of this processor, then of others. Without `make` there is one more of each."""
    compilers = {name: (name,) for name in COMPILERS} | ({"zig": (ZIG, "cc")} if ZIG else {})
    for name, command in compilers.items():
        for level, needed in LEVELS.items():
            if needed <= features() and (features() & {"sse2"}):
                target = level.replace("-v", "_v").replace("x86-64", "x86_64") if name == "zig" else level
                yield f"{name} {level}", Build((*command, "-O3", f"-march={target}"))
        yield f"{name} in any form", Build((*command, "-O2", "-march=native", "-std=gnu11"))
        yield f"{name} without vectors", Build((*command, "-O1", "-march=native", "-DNO_LANES"))
    for name, command in ARM_COMPILERS.items() if QEMU else ():
        yield f"ARM {name}", Build((*command, "-O3", "-static"), (str(QEMU), "./some"))
    if ZIG and NODE:
        for kind, options in {"": (), " with SIMD": ("-msimd128",)}.items():
            command = (ZIG, "cc", "-target", "wasm32-wasi", "-O3", *options)
            yield f"WebAssembly{kind}", Build(command, (NODE, "--no-warnings", "some.mjs"), "some.wasm")


BUILDS = dict(builds())


TASKS = ("characters", "transformer", "tagger", "classifier", "transducer", "frames")


def digest(folder: Path, build: Build, calls: Calls, caches: dict[str, str]) -> str:
    """Return the digest of the output of a program, with all digits of its numbers."""
    command = [*build.command, *([] if "-std=gnu11" in build.command else ["-std=c11"]), "-o", build.program]
    environment = os.environ | caches
    done = subprocess.run(
        [*command, "example.c", "some.c", "-lm"], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = b""
    for arguments, text in calls:
        words = [*(build.before or ("./some",)), *arguments]
        printed += subprocess.run(words, cwd=folder, input=text.encode(), capture_output=True, check=True).stdout
    assert printed.count(b"0x") > 5 or b"--generate" in str(calls).encode()
    numbers = re.sub(rb"-?0x[0-9a-f.]+p[+-][0-9]+", lambda m: float.fromhex(m[0].decode()).hex().encode(), printed)
    return hashlib.sha256(numbers).hexdigest()[:16]


def exact(files: FILES, folder: Path) -> Path:
    """Write the files into a folder; the example prints all digits and samples with all filters."""
    example = EXACT.sub("%a", files["example.c"].decode())
    assert "%a" in example
    example = example.replace("some_sampling how = {0};", f"some_sampling how = {SAMPLING};")
    return put(files | {"example.c": example.encode(), "some.mjs": WASI.encode()}, folder)


def digests(model: str, precision: str, names: dict[str, Build], folder: Path, cache: Path) -> dict[str, str]:
    files, calls = MODELS[model](precision)
    exact(files, folder)
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(cache))
    return {name: digest(folder, build, calls, caches) for name, build in names.items()}


@pytest.mark.slow
@pytest.mark.skipif(not BUILDS, reason="no compiler")
@pytest.mark.parametrize(
    ("model", "precision"),
    [(model, precision) for precision in ("f32", "f16", "int8") for model in (MODELS if precision == "f32" else TASKS)],
)
def test_all_builds_give_the_same_bits(
    model: str, precision: str, tmp_path: Path, kept_folder: Callable[[str], Path]
) -> None:
    digests_of_builds = digests(model, precision, BUILDS, tmp_path, kept_folder("zig"))
    different = set(digests_of_builds.values())
    print(f"\n{model}, {precision}: {len(digests_of_builds)} builds, digests: {sorted(different)}")
    assert len(different) == 1, digests_of_builds


FUSING = ("-O1", "-fexpensive-optimizations", "-std=gnu11", "-march=native")


@pytest.mark.skipif(
    not COMPILERS or "fma" not in features(), reason="no compiler, or a processor that fuses no products"
)
@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_builds_give_the_same_bits_unless_products_are_fused(fused: bool, tmp_path: Path) -> None:
    """The source sets the rounding without a Makefile, but options may fuse products."""
    two = {
        "one": Build((COMPILERS[0], "-O1", "-march=x86-64")),
        "other": Build((COMPILERS[0], *FUSING, *FUSED * fused)),
    }
    digests_of_builds = digests("characters", "f32", two, tmp_path, tmp_path)
    assert (digests_of_builds["one"] != digests_of_builds["other"]) == fused
