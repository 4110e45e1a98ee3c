"""Where compiled cells come from: the cache of libraries, the compiler, and what happens without either.

Whatever fails, a layer still runs, in torch operations and to the same numbers; nothing is printed and nothing raised.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ensue.nn import LSTM
from ensue.nn.engine import c_library, compiled, executing, explain, products, running, unroll
from nn.twins import needs_compiler

TEXT = "real twice(real x) { return 2 * x; }\n"
Library = Callable[..., ctypes.CDLL | None]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """`library` as it is in a process that has not compiled anything yet."""
    fresh = cache(c_library.library.__wrapped__)
    for module in (c_library, compiled, products):
        monkeypatch.setattr(module, "library", fresh)
    monkeypatch.setattr(compiled, "products", cache(products.products.__wrapped__))
    return fresh


def with_compiler(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...] | None) -> None:
    for module in (c_library, running):
        monkeypatch.setattr(module, "compiler", lambda: command)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def libraries(cache_directory: Path) -> list[Path]:
    """All that lies in the cache, half-written files too."""
    return sorted(path for path in cache_directory.rglob("*") if path.is_file())


def twice(library: ctypes.CDLL | None) -> float:
    assert library is not None
    library.twice.argtypes, library.twice.restype = [ctypes.c_double], ctypes.c_double
    return float(library.twice(2.25))


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

    def test_one_that_is_asked_for_and_not_there(self, only_these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = script(only_these / "cc", "exit 0")
        monkeypatch.setenv("CC", "no-such-compiler")
        assert self.find() == (path,)

    def test_one_with_a_word_before_it(self, only_these: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`CC="ccache gcc"` is common. It is a command, or else the next compiler is taken."""
        path = script(only_these / "cc", "exit 0")
        wrapper = script(only_these / "ccache", "exit 0")
        monkeypatch.setenv("CC", "ccache cc")
        assert self.find() in ((wrapper, "cc"), (path,))

    def test_the_package_or_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "ziglang" or None)
        assert self.find() == (sys.executable, "-m", "ziglang", "cc")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert self.find() is None


@pytest.mark.usefixtures("forgetful")
def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler(monkeypatch, None)
    runs_in_torch_operations()
    assert "no C compiler" in explain(LSTM(3, 5))


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("text", ["exit 1", "echo broken >&2; exit 1", "exit 0", "kill -9 $$"])
def test_a_compiler_that_fails(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says, and also if it says that all went well and has made nothing."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    with_compiler(monkeypatch, (script(tmp_path / "cc", text),))
    runs_in_torch_operations()
    assert libraries(tmp_path / "cache") == []


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler(monkeypatch, (str(tmp_path / "gone"),))
    runs_in_torch_operations()


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "SECONDS", 0.1)
    with_compiler(monkeypatch, (script(tmp_path / "cc", "exec sleep 60"),))
    runs_in_torch_operations()


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_makes_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be loaded is not kept."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    writes = 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"'
    with_compiler(monkeypatch, (script(tmp_path / "cc", writes),))
    runs_in_torch_operations()
    assert libraries(tmp_path / "cache") == []


@needs_compiler
class TestLibrary:
    """A text is compiled once for a machine, and kept where the cache is."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
        return tmp_path / "cache"

    def test_is_kept_in_the_cache(self, place: Path, forgetful: Library) -> None:
        assert twice(forgetful(TEXT, torch.float64)) == 4.5
        (path,) = libraries(place)
        assert path.suffix == ".so"

    def test_another_process_takes_it_from_there(
        self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forgetful(TEXT, torch.float64)
        (path,) = libraries(place)
        written = path.stat().st_mtime_ns
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert path.stat().st_mtime_ns == written

    def test_each_text_type_and_compiler_has_its_own(
        self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        command = c_library.compiler()
        assert command is not None
        forgetful(TEXT, torch.float64)
        forgetful(TEXT, torch.float32)
        forgetful(f"{TEXT}\n", torch.float64)
        assert len(libraries(place)) == 3
        with_compiler(monkeypatch, (script(tmp_path / "other", f'exec {" ".join(command)} "$@"'),))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert len(libraries(place)) == 4

    @pytest.mark.parametrize("content", [b"", b"\x7fELF damaged"])
    def test_a_damaged_one_is_made_again(
        self, place: Path, forgetful: Library, content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """In another cache, since a process loads a path but once."""
        forgetful(TEXT, torch.float64)
        (sound,) = libraries(place)
        damaged = tmp_path / "other" / "cells" / sound.name
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(content)
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "other"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert damaged.stat().st_size > len(content)
        assert libraries(tmp_path / "other") == [damaged]

    def test_a_text_that_is_no_c(self, place: Path, forgetful: Library) -> None:
        assert forgetful("this is no C", torch.float64) is None
        assert libraries(place) == []

    @pytest.mark.usefixtures("forgetful")
    def test_a_cache_that_is_a_file(self, place: Path) -> None:
        place.write_text("not a directory")
        runs_in_torch_operations()

    @pytest.mark.usefixtures("forgetful")
    @pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is read-only to root")
    def test_a_cache_that_is_read_only(self, place: Path) -> None:
        place.mkdir()
        place.chmod(0o555)
        runs_in_torch_operations()

    @pytest.mark.usefixtures("forgetful")
    def test_a_file_system_that_is_read_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same for root, whom no permission stops."""

        def refuse(*args: object, **kwargs: object) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(Path, "mkdir", refuse)
        runs_in_torch_operations()

    def test_two_processes_at_once(self, place: Path) -> None:
        """Each writes beside and renames: neither sees a half of the other's, and one file is left."""
        program = (
            "import ctypes, torch\n"
            "from ensue.nn.engine.c_library import library\n"
            f"found = library({TEXT!r}, torch.float64)\n"
            "found.twice.argtypes, found.twice.restype = [ctypes.c_double], ctypes.c_double\n"
            "assert found.twice(2.25) == 4.5\n"
        )
        command = [sys.executable, "-c", program]
        both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
        assert len(libraries(place)) == 1

    @pytest.mark.usefixtures("forgetful")
    def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(c_library, "FLAGS", (*c_library.FLAGS, "-no-such-flag"))
        runs_in_torch_operations()
        assert capfd.readouterr() == ("", "")


@needs_compiler
def test_compiled_layers_say_so() -> None:
    layer = LSTM(3, 5)
    assert explain(layer) == "compiled"
    with executing("plain"):
        assert explain(layer) == "in torch operations, position by position"
