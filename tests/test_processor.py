"""What the processor is."""

import builtins
import io
from collections.abc import Iterator

import pytest

from ensue import processor

CORE = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2\n\n"


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    functions = processor.maker, processor.features
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


@pytest.mark.parametrize(
    ("said", "maker", "features"),
    [
        (2 * CORE, "AuthenticAMD", {"fpu", "avx2"}),
        ("Features\t: fp asimd bf16\n", "", {"fp", "asimd", "bf16"}),
        ("", "", set()),
    ],
    ids=["x86", "arm", "nothing"],
)
def test_what_linux_says(said: str, maker: str, features: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "open", lambda *args, **kwargs: io.StringIO(said))
    assert processor.maker() == maker
    assert processor.features() == features


def test_other_systems_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(builtins, "open", missing)
    assert processor.maker() == ""
    assert processor.features() == frozenset()
