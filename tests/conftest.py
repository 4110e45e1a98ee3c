"""What all tests share."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

# The tensors of tests are small; threads would only wait for each other. It has to be said before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).resolve().parents[1]

# The shapes in the signatures of the layers are checked at each call, in tests only; the engine has none, and is many
# small functions. Where a float is wanted, an int does, as PEP 484 has it.
LAYERS = [f"ensue.nn.{path.stem}" for path in sorted((REPOSITORY / "src" / "ensue" / "nn").glob("[a-z]*.py"))]
jaxtyping.install_import_hook(LAYERS, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets beside the checkout; tests that use them are skipped where they are absent."""
    path = REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no ../shared/data on this machine")
    return path


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders. (To number them, `mktemp` looks at all that are there, each time.)"""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def cache_in_a_folder_of_its_own(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's cache."""
    cache = next(caches)
    cache.mkdir()
    monkeypatch.setenv("ENSUE_CACHE", str(cache))


settings.register_profile("shared machine", deadline=None)  # neighbors make single examples slow
settings.load_profile("shared machine")
