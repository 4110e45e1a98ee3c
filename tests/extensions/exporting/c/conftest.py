"""Where the package ziglang is, which compiles for other processors and for WebAssembly."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import REPOSITORY

PLACE = REPOSITORY / "build" / "ziglang"
"""`make build/ziglang` puts it there, beside the other packages, so that tests without a compiler have none."""
HAS_ZIG = find_spec("ziglang") is not None or PLACE.exists()


@pytest.fixture(scope="module", autouse=True)
def ziglang(kept_folder: Callable[[str], Path]) -> Iterator[None]:
    """The package can be imported; what it compiles once, a library of C, is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(kept_folder("zig")))
        if PLACE.exists():
            patch.syspath_prepend(PLACE)
            patch.setenv("PYTHONPATH", str(PLACE))
        yield
