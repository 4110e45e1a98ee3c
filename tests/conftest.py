"""What all tests share."""

import atexit
import gc
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from ensue.notices import forget_what_was_said

# The tensors of tests are small; threads would only wait for each other. It has to be said before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).resolve().parents[1]
QUICKLY_COMPILED = "-Og"
SIGNED = {"nn", "laws", "models", "engine"}
"""The folders of tests in which signatures are checked by default, too."""


def check_signatures() -> None:
    """The shapes in the signatures of the layers are checked at each call, in tests only.

    The engine, the border and taps have none, and are many small functions. Where a float is wanted, an int does, as
    PEP 484 has it.
    """
    import jaxtyping  # noqa: PLC0415

    from signatures import checked  # noqa: PLC0415

    files = {path.relative_to(REPOSITORY / "src") for path in (REPOSITORY / "src" / "ensue" / "nn").rglob("[a-z]*.py")}
    layers = sorted({".".join(path.with_suffix("").parts) for path in files} - {"ensue.nn.border", "ensue.nn.taps"})
    jaxtyping.install_import_hook(layers, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
    jaxtyping.jaxtyped = checked


def only_distributes() -> bool:
    """Whether this process runs no test, but gives them to workers, which begin when it has begun."""
    asked = re.search(r" (-n|--numprocesses)[ =]?(?!0\b)\w", " ".join(sys.argv))
    return asked is not None and "PYTEST_XDIST_WORKER" not in os.environ


if "PYTEST_XDIST_WORKER" in os.environ:  # what is registered first is called last: no object is freed one by one
    atexit.register(os._exit, 0)

if not only_distributes():  # importing torch takes seconds
    check_signatures()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data sets beside the checkout; tests that use them are skipped where they are absent."""
    path = REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("no ../shared/data on this machine")
    return path


@pytest.fixture(scope="session")
def kept_folder(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a folder that later runs of the tests find again; with `-p no:cacheprovider` they do not."""
    cache = getattr(pytestconfig, "cache", None)
    return cache.mkdir if cache else tmp_path_factory.mktemp


@pytest.fixture(scope="session", autouse=True)
def cells_of_all_tests(
    kept_folder: Callable[[str], Path], pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Compiled cells are those of all tests, of earlier runs too, as they take seconds.

    A third of that where the compiler leaves out what only makes them fast; the slow tests run what users run.
    """
    folder = kept_folder("cells")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        if not is_thorough(pytestconfig):
            patch.setenv("ENSUE_CFLAGS", f"{QUICKLY_COMPILED} {os.environ.get('ENSUE_CFLAGS', '')}")
        patch.setenv("ENSUE_CELLS", str(folder))
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))  # pytest's workers tidy nothing
        yield


@pytest.fixture(scope="session")
def unused_cache(new_cache: Callable[[], Path]) -> Callable[[], Path]:
    """A new cache if the last one was written to: most tests leave it as it was."""
    last: list[tuple[Path, list[int]]] = []

    def changes(cache: Path) -> list[int]:
        machines = cache / "machines"
        return [path.stat().st_ctime_ns for path in (cache, machines, *machines.iterdir())]

    def unused() -> Path:
        with suppress(OSError):
            if last and changes(last[0][0]) == last[0][1]:
                return last[0][0]
        cache = new_cache()
        last[:] = [(cache, changes(cache))]
        return cache

    return unused


@pytest.fixture(scope="session")
def new_cache(cells_of_all_tests: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a cache with nothing in it but a profile of the machine, which takes seconds to measure.

    The compiler's options are part of what is measured, so it comes after they are chosen.
    """
    from training.tiny import plain_profile  # noqa: PLC0415 (once the hook above is there)

    folder = tmp_path_factory.mktemp("caches")
    numbers = count()  # to number folders, `mktemp` looks at all that are there, each time
    profile = plain_profile()
    name, content = profile.machine.path.name, profile.model_dump_json()

    def new() -> Path:
        path = folder / str(next(numbers))
        (path / "machines").mkdir(parents=True)
        (path / "machines" / name).write_text(content, encoding="utf-8")
        return path

    return new


@pytest.fixture(scope="session", autouse=True)
def cache_of_modules(new_cache: Callable[[], Path]) -> Iterator[None]:
    """What fixtures of modules train, before any test has a cache of its own, leaves nothing in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENSUE_CACHE", str(new_cache()))
        yield


@pytest.fixture(scope="session")
def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    folder, numbers = tmp_path_factory.mktemp("tests"), count()

    def new() -> Path:
        path = folder / str(next(numbers))
        path.mkdir()
        return path

    return new


@pytest.fixture
def tmp_path(new_folder: Callable[[], Path]) -> Path:
    """As pytest's, which looks at the folders of all tests before it."""
    return new_folder()


@pytest.fixture(autouse=True)
def cache_of_its_own(unused_cache: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("ENSUE_CACHE", str(unused_cache()))
    forget_what_was_said()


@pytest.fixture
def in_torch_operations() -> Iterator[None]:
    """Nothing is compiled: the tests of the engine compare what is."""
    from ensue.engine import executing  # noqa: PLC0415 (once the hook above is there)

    with executing("plain"):
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """No test takes away the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def only_devices_that_are_there_are_seeded() -> Iterator[None]:
    """Without a GPU `torch.manual_seed` writes down the stack at each call, which takes longer than many a test."""
    import torch  # noqa: PLC0415 (once the hook above is there)

    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
        yield


settings.register_profile("few", max_examples=10, deadline=None)  # neighbors make single examples slow
settings.register_profile("many", max_examples=200, deadline=None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker says one thing of a test that passes, not five, each of which takes as long as a small test."""
    worker, options = session.config.pluginmanager.getplugin("workerinteractor"), session.config.option
    if worker is None or options.durations or options.xmlpath:
        return
    say = worker.sendevent

    def say_what_counts(name: str, **content: Any) -> None:
        passes = name == "testreport" and content["data"]["outcome"] == "passed" and content["data"]["when"] != "call"
        if name not in ("logstart", "logfinish") and not passes:
            say(name, **content)

    worker.sendevent = say_what_counts


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker begins with other files: Python compiles a file once, and the others find it compiled.

    Nothing of this makes garbage that is worth looking for.
    """
    gc.disable()
    workers = getattr(session.config, "workerinput", None)
    if workers and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        tests = REPOSITORY / "tests"
        files = sorted(tests.rglob("test_*.py"))
        for file in files[int(workers["workerid"][2:]) :: workers["workercount"]]:
            with suppress(Exception, pytest.skip.Exception):  # which pytest says where it collects the file
                importlib.import_module(".".join(file.relative_to(tests).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What is there when the tests begin stays until they end: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """pytest looks for garbage twice at its end: what the first time leaves need not be looked at again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Says what the tests took of the processor, workers and other processes too: a clock hears the neighbors.

    More than `ENSUE_TEST_SECONDS`, if that is set, is a failure.
    """
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if "PYTEST_XDIST_WORKER" in os.environ or reporter is None:
        return
    seconds, most = sum(os.times()[:4]), float(os.environ.get("ENSUE_TEST_SECONDS", "inf"))
    reporter.write_line(f"\n{seconds:.0f} s of processor time" + f", more than {most:.0f}" * (seconds > most))
    if seconds > most and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """By default signatures are checked where layers and models are tested: a fifth of what all other tests take."""
    import jaxtyping  # noqa: PLC0415 (once the hook above is there)

    is_checked = is_thorough(item.config) or item.path.name == "test_signatures.py"
    of_layers = SIGNED.intersection(item.path.relative_to(REPOSITORY / "tests").parts)
    jaxtyping.config.update("jaxtyping_disable", not (is_checked or of_layers))


def is_thorough(config: pytest.Config) -> bool:
    """Whether the slow tests are wanted."""
    return "slow" in config.option.markexpr.replace("not slow", "")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if is_thorough(config) else "few")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every property is tried again among the slow tests, with more examples. Of sampled cases most are slow."""
    sampled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if is_thorough(config) and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("slow")
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            sampled.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in sampled.values():
        mark = cases[0].get_closest_marker("sampled")
        assert mark
        kept = {place * len(cases) // mark.args[0] for place in range(mark.args[0])}
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker("slow")
