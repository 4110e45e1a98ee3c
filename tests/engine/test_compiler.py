"""The choice of the compiler, and layers without a compiler or with one that fails.

In these cases layers run in operations of torch with the same results, and there is one notice.
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


def assert_runs_in_torch_operations() -> None:
    torch.manual_seed(0)
    layer, x = LSTM(3, 5), torch.randn(4, 6, 3, requires_grad=True)
    assert explain(layer).startswith("in torch operations, position by position")
    result = unroll(layer, x, None, None)
    assert result is not None
    assert_same_with_gradients(layer, x, result[0], layer.fold(x)[0])


def assert_same_with_gradients(layer: LSTM, x: Tensor, y: Tensor, expected: Tensor) -> None:
    sources = [x, *layer.parameters()]
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        torch.autograd.grad(y.square().sum(), sources), torch.autograd.grad(expected.square().sum(), sources)
    )


class TestCompiler:
    """The choice of the compiler."""

    @pytest.fixture(autouse=True)
    def path_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Set the search path to an empty folder."""
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        return tmp_path

    def find(self) -> tuple[str, ...] | None:
        command: tuple[str, ...] | None = c_library.compiler.__wrapped__()
        return command

    def test_the_first_of_cc_gcc_clang_is_chosen(self, path_folder: Path) -> None:
        for name in ("clang", "gcc", "cc"):
            path = script(path_folder / name, "exit 0")
            assert self.find() == (path,)

    def test_cc_in_the_environment_is_preferred(self, path_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(path_folder / "cc", "exit 0")
        path = script(path_folder / "my-cc", "exit 0")
        monkeypatch.setenv("CC", "my-cc")
        assert self.find() == (path,)

    @pytest.mark.usefixtures("fresh_library")
    @pytest.mark.parametrize("text", ["no-such-compiler", "no-such -m64", "gcc '"])
    def test_a_missing_cc_in_the_environment_is_replaced_with_a_notice(
        self, text: str, path_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = script(path_folder / "cc", "exit 0")
        monkeypatch.setenv("CC", text)
        with notice() as line:
            assert self.find() == (path,)
        assert line == [f"CC={text}: no such command; {path} is used"]

    @pytest.mark.parametrize(
        "text", ["ccache gcc", "zig cc", "gcc -m64 '-DA=b c'", "with blank/cc", "'with blank/cc' -O1"]
    )
    def test_cc_may_have_arguments(self, text: str, path_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(path_folder / "cc", "exit 0")
        words = [text] if text.startswith("with") else shlex.split(text)
        program = path_folder / words[0]
        program.parent.mkdir(exist_ok=True)
        script(program, "exit 0")
        monkeypatch.setenv("CC", text.replace("with", str(path_folder / "with")))
        assert self.find() == (str(program), *words[1:])

    def test_windows_prefers_the_package_ziglang(self, path_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script(path_folder / "gcc", "exit 0")
        clang = script(path_folder / "clang", "exit 0")
        monkeypatch.setattr("platform.system", lambda: "Windows")
        assert self.find() == (clang,)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ziglang" or None)
        assert self.find() == (sys.executable, "-m", "ziglang", "cc")

    def test_the_package_ziglang_is_the_last_choice(self, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_options_depend_on_system_processor_and_compiler(
    system: str, machine: str, version: str, features: Collection[str], added: set[str], removed: set[str]
) -> None:
    flags = c_library.flags_for(system, machine, version, features)
    assert set(flags) == (set(c_library.FLAGS) | added) - removed


@pytest.mark.usefixtures("fresh_library")
def test_without_a_compiler_layers_run_in_torch_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler(monkeypatch, None)
    assert_runs_in_torch_operations()
    assert "no C compiler" in explain(LSTM(3, 5))


@pytest.mark.usefixtures("fresh_library")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exit 1", "fails (status 1)"),
        ("echo >&2; echo 'broken:  it' >&2; echo more >&2; exit 1", "fails (broken: it)"),
        ("echo 'In function f:' >&2; echo 'f:1: error: broken' >&2; exit 1", "fails (f:1: error: broken)"),
        ("exit 0", "writes no library (No such file or directory)"),
        ("kill -9 $$", "fails (status -9)"),
        (None, "writes no library (No such file or directory)"),
    ],
)
def test_a_compiler_that_fails_gives_one_notice(
    text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice names the compiler's first error, its exit status, or the missing library."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "cc"
    with_compiler(monkeypatch, (str(path) if text is None else script(path, text),))
    with notice() as line:
        assert_runs_in_torch_operations()
    assert line[0] == f"no compiled cells: {path} {message}; layers run in torch operations, which is slower"
    assert libraries(tmp_path / "cache") == []


@pytest.mark.usefixtures("fresh_library")
def test_a_failing_compiler_selects_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers with a parallel scan use it if the compiler fails, as they do without one."""
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


@pytest.mark.usefixtures("fresh_library")
def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "MAX_COMPILE_SECONDS", 0.1)
    with_compiler(monkeypatch, (script(tmp_path / "cc", "exec /bin/sleep 60"),))
    with notice() as line:
        assert_runs_in_torch_operations()
    assert "takes more than 0.1 seconds" in line[0]


@pytest.mark.usefixtures("fresh_library")
def test_output_that_is_no_library_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    writes = 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"'
    with_compiler(monkeypatch, (script(tmp_path / "cc", writes),))
    with notice() as line:
        assert_runs_in_torch_operations()
    assert "no compiled cells: " in line[0]
    assert libraries(tmp_path / "cache") == []


@needs_compiler
def test_explain_names_the_execution() -> None:
    layer = LSTM(3, 5)
    assert explain(layer) == "compiled"
    with executing("plain"):
        assert explain(layer) == "in torch operations, position by position"
