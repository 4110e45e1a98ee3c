"""Tests that depend on the processor pass in processes with another compiler or fewer features of the processor.

The environment of a process bounds the features that torch, oneDNN and the C compiler use.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.processor import features
from training.tiny import needs_bfloat16, words

TESTS = Path(__file__).resolve().parents[1]
AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
PROCESSORS: dict[str, tuple[str, str, str, set[str]]] = {
    "x86-64": ("default", "SSE41", "-march=x86-64", set()),
    "x86-64-v3": ("avx2", "AVX2", "-march=x86-64-v3", {"avx2", "fma", "bmi2"}),
    "x86-64-v4": ("avx512", "AVX512_CORE", "-march=x86-64-v4", AVX512),
    "AVX-VNNI": ("avx2", "AVX2", "-march=alderlake", {"avx_vnni"}),
    "bfloat16": ("avx512", "AVX512_CORE_BF16", "-march=cooperlake", AVX512 | {"avx512_bf16"}),
    "less for torch": ("avx2", "ALL", "-march=native", {"avx2"}),
    "less for oneDNN": ("avx512", "AVX2", "-march=native", AVX512),
}
"""The bounds for torch and oneDNN, the compiler's target, and the features that this processor needs for them."""
NO_COMPILER = {"CC": "", "PATH": "/nowhere"}
ZIGLANG = TESTS.parent / "build" / "ziglang"
COMPILERS = {
    "clang": {"CC": "clang"},
    "ziglang": NO_COMPILER | {"PYTHONPATH": str(ZIGLANG)},
    "one that fails": {"CC": "/bin/false"},
    "none": NO_COMPILER,
}
FILES = ("engine/test_engine.py", "engine/test_kernels.py", "engine/test_bf16_kernels.py", "engine/test_int8.py",
         "engine/test_feedback.py",
         "nn/recurrent/test_vendor.py", "nn/recurrent/test_minimal.py", "nn/recurrent/test_clockwork.py",
         "nn/attention/test_cross_attention.py", "nn/test_passes.py", "training/test_machine.py")  # fmt: skip
FILES_USING_TORCH = FILES[2:]
"""The first two of FILES test only the engine's C, which ignores the bounds of torch and oneDNN."""

IN_HALF_PRECISION = """
import torch
from ensue.engine import has_bfloat16
from ensue.nn import GRU, LSTM, Elman
assert not has_bfloat16()
x = torch.randn(2, 5, 3)
for kind in (LSTM, GRU, Elman):
    layer = kind(3, 4)
    expected, _ = layer.fold(x)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = layer(x)
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert layer.bfloat16()(x.bfloat16())[0].dtype == torch.bfloat16
"""


def environment_of(name: str) -> dict[str, str]:
    """Return the environment of a process that uses only the features of the processor `name`."""
    torch, onednn, target, needed = PROCESSORS[name]
    if not needed <= features():
        pytest.skip("this processor lacks the features; the tests of kernels compile for them")
    return {"ATEN_CPU_CAPABILITY": torch, "ONEDNN_MAX_CPU_ISA": onednn, "ENSUE_CFLAGS": target}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(TESTS.parent / "src"), str(TESTS), environment.get("PYTHONPATH", "")]
    variables = os.environ | environment | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, *command], env=variables, capture_output=True, text=True, check=False)


def assert_tests_pass(*names: str, **environment: str) -> None:
    """Run the quick tests of the files. The notice of a compiler that fails is not an error."""
    command = ["pytest", "-q", "-p", "no:xdist", "-W", "ignore::ensue.notices.Notice", "--rootdir", str(TESTS.parent)]
    result = run("-m", *command, *(str(TESTS / name) for name in names), **environment)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_tests_pass_on_another_processor(name: str) -> None:
    assert_tests_pass(*(FILES_USING_TORCH if name.startswith("less") else FILES), **environment_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILERS)
def test_tests_pass_with_another_compiler(name: str) -> None:
    if (name == "clang" and shutil.which("clang") is None) or (name == "ziglang" and not ZIGLANG.exists()):
        pytest.skip(f"no {name}")
    assert_tests_pass(FILES[0], **COMPILERS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3"])
def test_recurrent_layers_run_in_half_precision(name: str) -> None:
    """The processor lacks products in bfloat16, and the layers lack compiled code."""
    result = run("-c", IN_HALF_PRECISION, **environment_of(name), **NO_COMPILER)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@needs_bfloat16
def test_a_run_in_bfloat16_continues_without_the_feature(tmp_path: Path) -> None:
    """A new run is refused."""
    text, out, other = tmp_path / "text.txt", tmp_path / "run", tmp_path / "other"
    text.write_text(words(500))
    train = ["-m", "ensue", "train", "char-lstm", "--set", f"data.train={text}", "--set", "train.precision=bfloat16",
           "--set", "encoder.d_model=8", "--set", "train.steps=4"]  # fmt: skip
    assert run(*train, "--out", str(out)).returncode == 0
    refused = run(*train, "--out", str(other), **environment_of("x86-64-v3"))
    assert (refused.returncode, refused.stderr.count("\n"), other.exists()) == (2, 1, False)
    assert "train.precision is bfloat16: this processor lacks bfloat16" in refused.stderr
    resume = ["-m", "ensue", "train", "--out", str(out), "--resume", "--set"]
    resumed = run(*resume, "train.steps=6", **environment_of("x86-64-v3"))
    assert resumed.returncode == 0, resumed.stderr
    line = "note: this processor lacks a feature that the run used: the run continues with float32 in place of bfloat16"
    assert resumed.stderr.count(line) == 1
    resumed_here = run(*resume, "train.steps=8")
    assert resumed_here.returncode == 0
    assert ["lacks" in resumed_here.stderr, "bfloat16" in resumed_here.stderr] == [False, True]
