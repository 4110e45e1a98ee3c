"""The cache of compiled cells: kept for the machine, never taken from others, one for all processes and threads."""

import ctypes
import errno
import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch

from engine.cells import TEXT, Library, libraries, notice, script, twice, with_compiler
from engine.twins import needs_compiler
from ensue.engine import c_library
from ensue.private_folder import HAS_OWNERS, PrivateFolder, private_folder
from forgetting import forget_notices
from forked import FORK


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


def of_the_group(place: Path, mode: int = 0o770) -> str:
    place.mkdir()
    (place / "cells").mkdir()
    (place / "cells").chmod(mode)
    return f"others may write to it, its mode is {mode:04o}"


def open_to_all(place: Path) -> str:
    return of_the_group(place, 0o1777)


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

    @pytest.mark.slow
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

    @pytest.mark.sampled(1)
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
            assert forgetful("this is not C", torch.float64) is None
            assert forgetful("this is not C either", torch.float64) is None
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

    @pytest.mark.sampled(1)
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("spoil", FOREIGN, ids=lambda spoil: spoil.__name__)
    def test_a_file_that_is_not_the_users_is_not_loaded(
        self, place: Path, forgetful: Library, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is made again in its place. The one that lies there would be loaded: its content is right."""
        forgetful(TEXT, torch.float64)
        (path,) = libraries(place)
        content = path.read_bytes()
        spoil(path)
        forget_notices()
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
            assert folder.open_path("x.so") == str(tmp_path / "group" / "cells" / "x.so")
            (tmp_path / "group").chmod(0o770)
            with pytest.raises(OSError, match="group is open to others"):
                folder.open_path("x.so")
            (tmp_path / "group").chmod(0o1770)
            folder.open_path("x.so")
            (tmp_path / "group" / "cells").rename(tmp_path / "group" / "away")
            (tmp_path / "group" / "cells").mkdir(0o700)
            with pytest.raises(OSError, match="replaced"):
                folder.open_path("x.so")

    def test_a_full_disk(self, place: Path, forgetful: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        write = PrivateFolder.write

        def full(self: PrivateFolder, key: str, suffix: str, content: bytes) -> str:
            if self.path == place / "cells":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, key, suffix, content)

        monkeypatch.setattr(PrivateFolder, "write", full)
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

    @pytest.mark.slow
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
