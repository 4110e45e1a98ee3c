"""The package ziglang, which compiles for other processors and for WebAssembly."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import ensue
from conftest import REPOSITORY
from kept_runs.make import unpacked

PLACE = REPOSITORY / "build" / "ziglang"
"""`make build/ziglang` installs ziglang here, apart from other packages, so that tests without a compiler find none."""
HAS_ZIG = find_spec("ziglang") is not None or PLACE.exists()


@pytest.fixture(scope="module", autouse=True)
def ziglang(kept_folder: Callable[[str], Path]) -> Iterator[None]:
    """Make the package importable; the library of C, which it compiles once, is cached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(kept_folder("zig")))
        if PLACE.exists():
            patch.syspath_prepend(PLACE)
            patch.setenv("PYTHONPATH", str(PLACE))
        yield


@pytest.fixture(scope="session")
def with_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns a folder with the kept run of a name and its page."""

    @cache
    def made(name: str) -> Path:
        folder = tmp_path_factory.mktemp("web")
        unpacked(name, folder)
        notes = ensue.export_run(folder / name, folder / "page", "web")
        assert "5 files" in "".join(notes)
        return folder

    return made
