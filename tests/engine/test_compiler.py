"""Where compiled cells come from: the cache of libraries, the compiler, and what happens without either.

Whatever fails, a layer still runs, in torch operations and to the same numbers, and that is said once.
"""

import ctypes
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.twins import needs_compiler
from ensue.engine import c_library, c_passes, executing, execution, explain, products, unroll
from ensue.nn import LSTM
from ensue.notices import Notice, forget_what_was_said
from ensue.private_folder import HAS_OWNERS, PrivateFolder, private_folder
from forked import FORK

TEXT = "real twice(real x) { return 2 * x; }\n"
Library = Callable[..., ctypes.CDLL | None]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """`library` as it is in a process that has not compiled anything yet."""
    fresh = cache(c_library.library.__wrapped__)
    for module in (c_library, c_passes, products):
        monkeypatch.setattr(module, "library", fresh)
    monkeypatch.setattr(c_passes, "products", cache(products.products.__wrapped__))
    monkeypatch.delenv("ENSUE_CELLS", raising=False)
    return fresh


def with_compiler(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...] | None) -> None:
    for module in (c_library, execution):
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


@contextmanager
def notice() -> Iterator[list[str]]:
    """The one thing that is said inside, known after."""
    lines: list[str] = []
    with pytest.warns(Notice) as caught:
        yield lines
    lines += [str(warning.message) for warning in caught]
    assert len(lines) == 1, lines


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
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 1", "fails (status 1)"),
        ("echo >&2; echo 'broken:  it' >&2; echo more >&2; exit 1", "fails (broken: it)"),
        ("exit 0", "makes nothing (No such file or directory)"),
        ("kill -9 $$", "fails (status -9)"),
    ],
)
def test_a_compiler_that_fails(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says, and also if it says that all went well and has made nothing."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    with_compiler(monkeypatch, (script(tmp_path / "cc", text),))
    with notice() as line:
        runs_in_torch_operations()
    path = tmp_path / "cc"
    assert line[0] == f"no compiled cells: {path} {said}; layers run in torch operations, which is slower"
    assert libraries(tmp_path / "cache") == []


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_compiler(monkeypatch, (str(tmp_path / "gone"),))
    with notice() as line:
        runs_in_torch_operations()
    assert "gone makes nothing (No such file or directory)" in line[0]


@pytest.mark.usefixtures("forgetful")
def test_a_compiler_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "SECONDS", 0.1)
    with_compiler(monkeypatch, (script(tmp_path / "cc", "exec sleep 60"),))
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


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def a_file(place: Path) -> str:
    place.write_text("not a directory")
    return "Not a directory"


def read_only(place: Path) -> str:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only to root")
    place.mkdir()
    place.chmod(0o555)
    return "Permission denied"


def a_link(place: Path) -> str:
    place.mkdir()
    (place / "elsewhere").mkdir(0o700)
    (place / "cells").symlink_to(place / "elsewhere")
    return "it is a symbolic link"


def of_the_group(place: Path) -> str:
    place.mkdir()
    (place / "cells").mkdir()
    (place / "cells").chmod(0o770)
    return "others may write to it, its mode is 0770"


def open_to_all(place: Path) -> str:
    place.mkdir()
    (place / "cells").mkdir()
    (place / "cells").chmod(0o1777)
    return "others may write to it, its mode is 1777"


def of_somebody_else(place: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root gives a folder away")
    place.mkdir()
    (place / "cells").mkdir(0o700)
    os.chown(place / "cells", 12345, 12345)
    return "it belongs to another user, 12345"


SPOILED = [a_file, read_only, a_link, of_the_group, open_to_all, of_somebody_else]


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def writable(path: Path) -> None:
    path.chmod(0o660)


def given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    os.chown(path, 12345, 12345)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


FOREIGN = [linked, writable, given_away, a_pipe]


@needs_compiler
class TestLibrary:
    """A text is compiled once for a machine, and kept where the cache is."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("ENSUE_CELLS", raising=False)
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
        written = path.stat().st_ino
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert path.stat().st_ino == written

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
        """In another cache, since a process loads a file but once."""
        forgetful(TEXT, torch.float64)
        (sound,) = libraries(place)
        damaged = tmp_path / "other" / "cells" / sound.name
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(content)
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "other"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert damaged.read_bytes() == sound.read_bytes()
        assert libraries(tmp_path / "other") == [damaged]

    def test_a_text_that_is_no_c(self, place: Path, forgetful: Library) -> None:
        with notice() as line:
            assert forgetful("this is no C", torch.float64) is None
            assert forgetful("this is no C either", torch.float64) is None
        assert "error" in line[0]
        assert libraries(place) == []

    @pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
    def test_a_folder_that_is_not_the_users_alone_is_not_used(
        self, place: Path, forgetful: Library, spoil: Callable[[Path], str], tmp_path: Path
    ) -> None:
        """Neither read nor written: the cells are compiled for this process alone."""
        said = spoil(place)
        before = libraries(tmp_path)
        with notice() as line:
            assert twice(forgetful(TEXT, torch.float64)) == 4.5
        start, _, end = line[0].partition(" (")
        assert start == f"{place / 'cells'}: not used for compiled cells"
        assert end.startswith(said)
        assert libraries(tmp_path) == before

    @pytest.mark.skipif(os.name != "posix", reason="looks at modes")
    def test_its_folder_is_open_to_nobody_else(self, place: Path, forgetful: Library) -> None:
        """One that others could only look into is closed to them."""
        forgetful(TEXT, torch.float64)
        (path,) = libraries(place)
        modes = [item.stat().st_mode & 0o777 for item in (place, place / "cells", path)]
        assert modes == [0o700, 0o700, 0o600]
        (place / "cells").chmod(0o755)
        cache(c_library.library.__wrapped__)(TEXT, torch.float64)
        assert (place / "cells").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("spoil", FOREIGN, ids=lambda spoil: spoil.__name__)
    def test_a_file_that_is_not_the_users_is_not_loaded(
        self, place: Path, forgetful: Library, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is made again in its place. The one that lies there would be loaded: its content is right."""
        forgetful(TEXT, torch.float64)
        (path,) = libraries(place)
        content = path.read_bytes()
        spoil(path)
        forget_what_was_said()
        with notice() as line:
            assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert line[0].startswith(f"{path}: not used (")
        status = path.lstat()
        assert (stat.S_ISREG(status.st_mode), status.st_mode & 0o777, status.st_uid) == (True, 0o600, os.geteuid())
        assert path.read_bytes() == content

    def test_a_folder_that_is_exchanged_after_the_look_at_it(
        self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """What is loaded is in the folder that was looked at, wherever its name leads by then."""
        if not Path("/proc/self/fd").is_dir():
            pytest.skip("goes through /proc")
        forgetful(TEXT, torch.float64)
        (path,) = libraries(place)
        evil = tmp_path / "evil"
        evil.mkdir()
        (evil / path.name).write_bytes(path.read_bytes())
        loaded = []

        def exchange(way: str) -> ctypes.CDLL:
            (place / "cells").rename(tmp_path / "away")
            (place / "cells").symlink_to(evil)
            loaded.append(os.stat(way).st_ino)
            return CDLL(way)

        CDLL, inode = ctypes.CDLL, path.stat().st_ino
        monkeypatch.setattr(ctypes, "CDLL", exchange)
        cache(c_library.library.__wrapped__)(TEXT, torch.float64)
        assert loaded == [inode]

    @pytest.mark.skipif(not HAS_OWNERS, reason="looks at owners")
    def test_without_proc_the_whole_way_is_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder above that others may write to could be exchanged."""
        monkeypatch.setattr(os.path, "isdir", lambda path: False)
        with private_folder(tmp_path / "group" / "cells") as folder:
            assert folder.way("x.so") == str(tmp_path / "group" / "cells" / "x.so")
            (tmp_path / "group").chmod(0o770)
            with pytest.raises(OSError, match="group is open to others"):
                folder.way("x.so")
            (tmp_path / "group").chmod(0o1770)
            folder.way("x.so")
            (tmp_path / "group" / "cells").rename(tmp_path / "group" / "away")
            (tmp_path / "group" / "cells").mkdir(0o700)
            with pytest.raises(OSError, match="exchanged"):
                folder.way("x.so")

    def test_a_full_disk(self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        keep = PrivateFolder.keep

        def full(self: PrivateFolder, key: str, suffix: str, content: bytes) -> str:
            if self.path == place / "cells":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return keep(self, key, suffix, content)

        monkeypatch.setattr(PrivateFolder, "keep", full)
        with notice() as line:
            assert twice(forgetful(TEXT, torch.float64)) == 4.5
        assert "No space left on device" in line[0]

    @pytest.mark.usefixtures("place")
    def test_without_a_home(self, forgetful: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ENSUE_CACHE", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", no_home)
        with notice() as line:
            assert twice(forgetful(TEXT, torch.float64)) == 4.5
        assert line[0].startswith("there is no home directory")

    def test_two_processes_at_once(self, place: Path, forgetful: Library) -> None:
        """Each writes beside and renames: neither sees a half of the other's, and one file is left."""
        start = FORK.Barrier(2)

        def compile_it() -> None:
            start.wait()
            assert twice(forgetful(TEXT, torch.float64)) == 4.5

        both = [FORK.Process(target=compile_it) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(120)
        assert [process.exitcode for process in both] == [0, 0]
        assert len(libraries(place)) == 1

    def test_several_threads_at_once(self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        """A text is compiled once."""
        run, calls = subprocess.run, []
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: (calls.append(1), run(*args, **kwargs))[1])
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: twice(forgetful(TEXT, torch.float64)), range(4)))
        assert found == [4.5] * 4
        assert len(calls) == len(libraries(place)) == 1


@needs_compiler
def test_compiled_layers_say_so() -> None:
    layer = LSTM(3, 5)
    assert explain(layer) == "compiled"
    with executing("plain"):
        assert explain(layer) == "in torch operations, position by position"
