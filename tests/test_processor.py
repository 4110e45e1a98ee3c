"""What the processor is."""

import builtins
import io
import platform
from collections.abc import Iterator

import pytest

from ensue import processor

CORE = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2\n\n"


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    functions = processor.name, processor.features
    for function in functions:
        function.cache_clear()
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "armv8")
    yield
    for function in functions:
        function.cache_clear()


@pytest.mark.parametrize(
    ("said", "name", "features"),
    [
        (2 * CORE, "AMD EPYC", {"fpu", "avx2"}),
        ("Features\t: fp asimd bf16\n", "armv8", {"fp", "asimd", "bf16"}),
        ("", "armv8", set()),
    ],
    ids=["x86", "arm", "nothing"],
)
def test_what_linux_says(said: str, name: str, features: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "open", lambda *args, **kwargs: io.StringIO(said))
    assert processor.name() == name
    assert processor.features() == features


def test_other_systems_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(builtins, "open", missing)
    assert processor.name() == "armv8"
    assert processor.features() == frozenset()
