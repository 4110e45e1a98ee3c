"""Which compiler is taken, and what happens without one, or with one that fails.

Whatever fails, a layer still runs, in torch operations and to the same numbers, and that is said once.
"""

import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from engine.cells import libraries, notice, script, with_compiler
from engine.twins import needs_compiler
from ensue.engine import c_library, executing, explain, unroll
from ensue.nn import LSTM, MinGRU


def runs_in_torch_operations() -> None:
    torch.manual_seed(0)
    layer, x = LSTM(3, 5), torch.randn(4, 6, 3, requires_grad=True)
    assert explain(layer).startswith("in torch operations, position by position")
    found = unroll(layer, x, None, None)
    assert found is not None
    same_with_gradients(layer, x, found[0], layer.fold(x)[0])


def same_with_gradients(layer: LSTM, x: Tensor, y: Tensor, expected: Tensor) -> None:
    sources = [x, *layer.parameters()]
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        torch.autograd.grad(y.square().sum(), sources), torch.autograd.grad(expected.square().sum(), sources)
    )


class TestCompiler:
    """Which compiler is taken."""

    @pytest.fixture(autouse=True)
    def only_these(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A path on which there is nothing but what a test puts there."""
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        return tmp_path

    def find(self) -> tuple[str, ...] | None:
        found: tuple[str, ...] | None = c_library.compiler.__wrapped__()
        return found

    def test_the_first_of_cc_gcc_clang(self, only_these: Path) -> None:
        for name in ("clang", "gcc", "cc"):
            path = script(only_these / name, "exit 0")
            assert self.find() == (path,)

    def test_the_one_that_is_asked_for(self, only_these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(only_these / "cc", "exit 0")
        path = script(only_these / "my-cc", "exit 0")
        monkeypatch.setenv("CC", "my-cc")
        assert self.find() == (path,)

    @pytest.mark.usefixtures("forgetful")
    @pytest.mark.parametrize("text", ["no-such-compiler", "no-such -m64", "gcc '"])
    def test_one_that_is_asked_for_and_not_there(
        self, text: str, only_these: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = script(only_these / "cc", "exit 0")
        monkeypatch.setenv("CC", text)
        with notice() as line:
            assert self.find() == (path,)
        assert line == [f"CC={text}: no such command; {path} is used"]

    @pytest.mark.parametrize(
        "text", ["ccache gcc", "zig cc", "gcc -m64 '-DA=b c'", "with blank/cc", "'with blank/cc' -O1"]
    )
    def test_one_with_arguments(self, text: str, only_these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(only_these / "cc", "exit 0")
        words = [text] if text.startswith("with") else shlex.split(text)
        program = only_these / words[0]
        program.parent.mkdir(exist_ok=True)
        script(program, "exit 0")
        monkeypatch.setenv("CC", text.replace("with", str(only_these / "with")))
        assert self.find() == (str(program), *words[1:])

    def test_on_windows_the_package_comes_first(self, only_these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(only_these / "gcc", "exit 0")
        clang = script(only_these / "clang", "exit 0")
        monkeypatch.setattr("platform.system", lambda: "Windows")
        assert self.find() == (clang,)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ziglang" or None)
        assert self.find() == (sys.executable, "-m", "ziglang", "cc")

    def test_the_package_or_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ziglang" or None)
        assert self.find() == (sys.executable, "-m", "ziglang", "cc")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert self.find() is None


GCC, CLANG = "gcc.exe (MinGW-W64) 14.2.0\nFree Software", "clang version 22.1\nTarget: x86_64-unknown-windows-gnu"
MSVC = CLANG.replace("unknown-windows-gnu", "pc-windows-msvc")


@pytest.mark.parametrize(
    ("system", "machine", "version", "features", "added", "removed"),
    [
        ("Linux", "x86_64", "", {"avx2"}, set(), set()),
        ("Linux", "x86_64", "", {"avx512f"}, {"-mprefer-vector-width=512"}, set()),
        ("Linux", "aarch64", "", (), set(), set()), ("Darwin", "arm64", "", (), {"-mcpu=native"}, {"-march=native"}),
        ("Darwin", "x86_64", "", (), set(), set()), ("Windows", "AMD64", GCC, (), {"-mno-avx"}, set()),
        ("Windows", "AMD64", GCC, {"avx512f"}, {"-mno-avx"}, set()), ("Windows", "ARM64", GCC, (), set(), set()),
        ("Windows", "AMD64", CLANG, (), set(), set()), ("Windows", "AMD64", MSVC, (), set(), {"-fPIC"}),
    ],
)  # fmt: skip
def test_options(
    system: str, machine: str, version: str, features: Collection[str], added: set[str], removed: set[str]
) -> None:
    flags = c_library.flags_for(system, machine, version, features)
    assert set(flags) == (set(c_library.FLAGS) | added) - removed


@pytest.mark.usefixtures("forgetful")
def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler(monkeypatch, None)
    runs_in_torch_operations()
    assert "no C compiler" in explain(LSTM(3, 5))


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 1", "fails (status 1)"),
        ("echo >&2; echo 'broken:  it' >&2; echo more >&2; exit 1", "fails (broken: it)"),
        ("echo 'In function f:' >&2; echo 'f:1: error: broken' >&2; exit 1", "fails (f:1: error: broken)"),
        ("exit 0", "writes no library (No such file or directory)"),
        ("kill -9 $$", "fails (status -9)"),
        (None, "writes no library (No such file or directory)"),
    ],
)
def test_a_compiler_that_fails(text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice names the compiler's first error, its exit status, or the missing library."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "cc"
    with_compiler(monkeypatch, (str(path) if text is None else script(path, text),))
    with notice() as line:
        runs_in_torch_operations()
    assert line[0] == f"no compiled cells: {path} {said}; layers run in torch operations, which is slower"
    assert libraries(tmp_path / "cache") == []


@pytest.mark.usefixtures("forgetful")
def test_what_a_scan_can_run_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that is there and fails is as good as none."""
    with_compiler(monkeypatch, (script(tmp_path / "cc", "exit 1"),))
    layer, x = MinGRU(3, 5), torch.randn(4, 6, 3)
    with patch.object(MinGRU, "by_scan", autospec=True, side_effect=MinGRU.by_scan) as by_scan:
        with notice():
            y, _ = layer(x)
        torch.testing.assert_close(y, layer.fold(x)[0])
        assert by_scan.call_count == 1
        with executing("fold"):
            layer(x)
        assert by_scan.call_count == 1


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "MAX_COMPILE_SECONDS", 0.1)
    with_compiler(monkeypatch, (script(tmp_path / "cc", "exec /bin/sleep 60"),))
    with notice() as line:
        runs_in_torch_operations()
    assert "takes more than 0.1 seconds" in line[0]


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_makes_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be loaded is not kept."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    writes = 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"'
    with_compiler(monkeypatch, (script(tmp_path / "cc", writes),))
    with notice() as line:
        runs_in_torch_operations()
    assert "no compiled cells: " in line[0]
    assert libraries(tmp_path / "cache") == []


@needs_compiler
def test_compiled_layers_say_so() -> None:
    layer = LSTM(3, 5)
    assert explain(layer) == "compiled"
    with executing("plain"):
        assert explain(layer) == "in torch operations, position by position"
