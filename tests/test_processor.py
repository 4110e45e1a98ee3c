"""Name, features, cores and memory of the processor and its control group."""

import builtins
import io
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ensue import processor

CORE = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2\n\n"


@pytest.fixture(autouse=True)
def _without_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    functions = processor.name, processor.features
    for function in functions:
        function.cache_clear()
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "armv8")
    yield
    for function in functions:
        function.cache_clear()


@pytest.mark.parametrize(
    ("cpuinfo", "name", "features"),
    [
        (2 * CORE, "AMD EPYC", {"fpu", "avx2"}),
        ("Features\t: fp asimd bf16\n", "armv8", {"fp", "asimd", "bf16"}),
        ("", "armv8", set()),
    ],
    ids=["x86", "arm", "nothing"],
)
def test_name_and_features_are_read_from_cpuinfo(
    cpuinfo: str, name: str, features: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "open", lambda *args, **kwargs: io.StringIO(cpuinfo))
    assert processor.name() == name
    assert processor.features() == features


def test_without_cpuinfo_there_are_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(builtins, "open", missing)
    assert processor.name() == "armv8"
    assert processor.features() == frozenset()


LARGE_ARRAYS = """
import resource
import sys
from ensue.processor import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keeping" else None
for number in range(9):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _ = bytes(1 << 26).count(1)
    del _
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused_after_keep_freed_memory() -> None:
    """A large array then causes no new page faults."""
    outputs = [
        subprocess.run([sys.executable, "-c", LARGE_ARRAYS, mode], capture_output=True, text=True, check=True).stdout
        for mode in ("keeping", "as it is")
    ]
    (is_kept, few), (_, many) = map(str.split, outputs)
    assert is_kept == "True"
    assert 10 * int(few) < int(many)


def test_keep_freed_memory_returns_false_without_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not processor.keep_freed_memory()


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1500000000"}, ["1500000000"]),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "7"}, ["7", "max"]),
        ("4:memory:/c\n0::/\n", {"memory/memory.limit_in_bytes": "9"}, ["9"]),
        ("damaged", {}, []),
    ],
    ids=["a container", "nested", "version 1", "damaged"],
)
def test_control_group_limits_are_read(groups: str, files: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    """The system kills a container that uses more than the memory of its group."""
    (tmp_path / "cgroup").write_text(groups)
    for name, content in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    limits = processor.read_cgroups(
        "memory.max", "memory.limit_in_bytes", file=tmp_path / "cgroup", root=tmp_path / "root"
    )
    assert sorted(limits) == expected


def test_cores_and_memory_are_bounded_by_the_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"cpu.max": ["50000 100000", "max 100000"], "memory.max": ["1000", "max"]}
    monkeypatch.setattr(processor, "read_cgroups", lambda *files: limits[files[0]])
    assert processor.cores() == 1
    assert processor.memory() == 1000
