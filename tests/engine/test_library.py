"""The cache of compiled cells: on disk, never read from another user's file, one for all processes and threads."""

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


def raise_no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def regular_file(cache_folder: Path) -> str:
    cache_folder.write_text("not a directory")
    return "Not a directory"


def read_only(cache_folder: Path) -> str:
    if os.geteuid() == 0:
        pytest.skip("nothing is read-only to root")
    cache_folder.mkdir()
    cache_folder.chmod(0o555)
    return "Permission denied"


def symbolic_link(cache_folder: Path) -> str:
    cache_folder.mkdir()
    (cache_folder / "elsewhere").mkdir(0o700)
    (cache_folder / "cells").symlink_to(cache_folder / "elsewhere")
    return "it is a symbolic link"


def writable_by_group(cache_folder: Path, mode: int = 0o770) -> str:
    cache_folder.mkdir()
    (cache_folder / "cells").mkdir()
    (cache_folder / "cells").chmod(mode)
    return f"others may write to it, its mode is {mode:04o}"


def writable_by_all(cache_folder: Path) -> str:
    return writable_by_group(cache_folder, 0o1777)


def of_another_user(cache_folder: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root gives a folder away")
    cache_folder.mkdir()
    (cache_folder / "cells").mkdir(0o700)
    os.chown(cache_folder / "cells", 12345, 12345)
    return "it belongs to another user, 12345"


UNUSABLE_FOLDERS = [regular_file, read_only, symbolic_link, writable_by_group, writable_by_all, of_another_user]


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_writable(path: Path) -> None:
    path.chmod(0o660)


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    os.chown(path, 12345, 12345)


def named_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


UNUSABLE_FILES = [replace_by_link, make_writable, give_away, named_pipe]


@needs_compiler
class TestLibrary:
    """A text is compiled once for a machine, into the folder of the cache."""

    @pytest.fixture(autouse=True)
    def cache_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("ENSUE_CELLS", raising=False)
        return tmp_path / "cache"

    def test_a_library_is_stored_in_the_cache(self, cache_folder: Path, fresh_library: Library) -> None:
        assert twice(fresh_library(TEXT, torch.float64)) == 4.5
        (path,) = libraries(cache_folder)
        assert path.suffix == ".so"

    def test_another_process_loads_the_stored_library(
        self, cache_folder: Path, fresh_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fresh_library(TEXT, torch.float64)
        (path,) = libraries(cache_folder)
        written = path.stat().st_ino
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert path.stat().st_ino == written

    @pytest.mark.slow
    def test_each_text_type_and_compiler_has_a_library(
        self, cache_folder: Path, fresh_library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        command = c_library.compiler()
        assert command is not None
        fresh_library(TEXT, torch.float64)
        fresh_library(TEXT, torch.float32)
        fresh_library(f"{TEXT}\n", torch.float64)
        assert len(libraries(cache_folder)) == 3
        with_compiler(monkeypatch, (script(tmp_path / "other", f'exec {" ".join(command)} "$@"'),))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert len(libraries(cache_folder)) == 4

    @pytest.mark.sampled(1)
    @pytest.mark.parametrize("content", [b"", b"\x7fELF damaged"])
    def test_a_damaged_library_is_compiled_again(
        self,
        cache_folder: Path,
        fresh_library: Library,
        content: bytes,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        """The damaged file is in another cache, since a process loads a file only once."""
        fresh_library(TEXT, torch.float64)
        (sound,) = libraries(cache_folder)
        damaged = tmp_path / "other" / "cells" / sound.name
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(content)
        monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "other"))
        assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert damaged.read_bytes() == sound.read_bytes()
        assert libraries(tmp_path / "other") == [damaged]

    def test_a_text_that_is_not_c_gives_a_single_notice(self, cache_folder: Path, fresh_library: Library) -> None:
        with notice() as line:
            assert fresh_library("this is not C", torch.float64) is None
            assert fresh_library("this is not C either", torch.float64) is None
        assert "error" in line[0]
        assert libraries(cache_folder) == []

    @pytest.mark.parametrize("spoil", UNUSABLE_FOLDERS, ids=lambda spoil: spoil.__name__)
    def test_a_folder_that_others_may_change_is_not_used(
        self, cache_folder: Path, fresh_library: Library, spoil: Callable[[Path], str], tmp_path: Path
    ) -> None:
        """It is neither read nor written, and the cells are compiled for this process alone."""
        reason = spoil(cache_folder)
        before = libraries(tmp_path)
        with notice() as line:
            assert twice(fresh_library(TEXT, torch.float64)) == 4.5
        start, _, end = line[0].partition(" (")
        assert start == f"{cache_folder / 'cells'}: not used for compiled cells"
        assert end.startswith(reason)
        assert libraries(tmp_path) == before

    @pytest.mark.skipif(os.name != "posix", reason="looks at modes")
    def test_the_folder_is_closed_to_others(self, cache_folder: Path, fresh_library: Library) -> None:
        """A folder that others can only list is closed to them, too."""
        fresh_library(TEXT, torch.float64)
        (path,) = libraries(cache_folder)
        modes = [item.stat().st_mode & 0o777 for item in (cache_folder, cache_folder / "cells", path)]
        assert modes == [0o700, 0o700, 0o600]
        (cache_folder / "cells").chmod(0o755)
        cache(c_library.library.__wrapped__)(TEXT, torch.float64)
        assert (cache_folder / "cells").stat().st_mode & 0o777 == 0o700

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("spoil", UNUSABLE_FILES, ids=lambda spoil: spoil.__name__)
    def test_a_file_that_others_may_change_is_not_loaded(
        self, cache_folder: Path, fresh_library: Library, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is compiled again and replaced. Only its owner and mode are wrong: its content could be loaded."""
        fresh_library(TEXT, torch.float64)
        (path,) = libraries(cache_folder)
        content = path.read_bytes()
        spoil(path)
        forget_notices()
        with notice() as line:
            assert twice(cache(c_library.library.__wrapped__)(TEXT, torch.float64)) == 4.5
        assert line[0].startswith(f"{path}: not used (")
        status = path.lstat()
        assert (stat.S_ISREG(status.st_mode), status.st_mode & 0o777, status.st_uid) == (True, 0o600, os.geteuid())
        assert path.read_bytes() == content

    def test_a_folder_that_is_replaced_after_its_check_is_still_the_one_read(
        self, cache_folder: Path, fresh_library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The loaded file is in the folder that was checked, wherever the path of the folder leads by then."""
        if not Path("/proc/self/fd").is_dir():
            pytest.skip("goes through /proc")
        fresh_library(TEXT, torch.float64)
        (path,) = libraries(cache_folder)
        evil = tmp_path / "evil"
        evil.mkdir()
        (evil / path.name).write_bytes(path.read_bytes())
        loaded = []

        def exchange(path: str) -> ctypes.CDLL:
            (cache_folder / "cells").rename(tmp_path / "away")
            (cache_folder / "cells").symlink_to(evil)
            loaded.append(os.stat(path).st_ino)
            return CDLL(path)

        CDLL, inode = ctypes.CDLL, path.stat().st_ino
        monkeypatch.setattr(ctypes, "CDLL", exchange)
        cache(c_library.library.__wrapped__)(TEXT, torch.float64)
        assert loaded == [inode]

    @pytest.mark.skipif(not HAS_OWNERS, reason="looks at owners")
    def test_without_proc_folders_of_paths_are_checked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder above that others may write to could be replaced."""
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

    def test_a_full_disk_gives_a_notice_and_a_library_of_the_process(
        self, cache_folder: Path, fresh_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = PrivateFolder.write

        def full(self: PrivateFolder, key: str, suffix: str, content: bytes) -> str:
            if self.path == cache_folder / "cells":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(self, key, suffix, content)

        monkeypatch.setattr(PrivateFolder, "write", full)
        with notice() as line:
            assert twice(fresh_library(TEXT, torch.float64)) == 4.5
        assert "No space left on device" in line[0]

    @pytest.mark.usefixtures("cache_folder")
    def test_libraries_need_no_home_directory(self, fresh_library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ENSUE_CACHE", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", raise_no_home)
        with notice() as line:
            assert twice(fresh_library(TEXT, torch.float64)) == 4.5
        assert line[0].startswith("there is no home directory")

    @pytest.mark.slow
    def test_two_processes_at_once_leave_one_library(self, cache_folder: Path, fresh_library: Library) -> None:
        """Each writes a temporary file and renames it, so neither reads half of the other's library."""
        start = FORK.Barrier(2)

        def compile_it() -> None:
            start.wait()
            assert twice(fresh_library(TEXT, torch.float64)) == 4.5

        both = [FORK.Process(target=compile_it) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(120)
        assert [process.exitcode for process in both] == [0, 0]
        assert len(libraries(cache_folder)) == 1

    def test_several_threads_at_once_compile_a_text_once(
        self, cache_folder: Path, fresh_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, calls = subprocess.run, []
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: (calls.append(1), run(*args, **kwargs))[1])
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: twice(fresh_library(TEXT, torch.float64)), range(4)))
        assert results == [4.5] * 4
        assert len(calls) == len(libraries(cache_folder)) == 1
