"""What all tests share."""

import atexit
import gc
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.intervalsets import IntervalSet

from forgetting import forget_what_was_said
from leftovers import watch
from machine_speed import MachineSpeed
from own_tests import OwnTests, is_left_out, own_files, pytest_configure_node, pytest_testnodedown
from without_extensions import hide

__all__ = ["pytest_configure_node", "pytest_testnodedown"]
pytest_plugins = ["command_fixtures"]

# The tensors of tests are small; threads would only wait for each other. It has to be said before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if hidden := os.environ.get("ENSUE_TEST_WITHOUT"):
    hide(hidden.split(","))

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = pytest.StashKey[set[str]]()
IS_GCC = "gcc" in os.path.realpath(shutil.which("cc") or "") and "CC" not in os.environ
QUICKLY_COMPILED = ["-Og", *["-fira-region=one"] * IS_GCC]
"""The second option saves up to a third of the time, in large cells; other compilers do not know it."""


def check_signatures() -> None:
    """The shapes in the signatures of the layers are checked at each call, in slow tests only: by default that would be
    a fifth of what all other tests take.

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


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """The earliest hook: the conftest.py of a folder may import layers."""
    config: Any = pluginmanager.get_plugin("pytestconfig")
    if is_thorough(config) and not only_distributes():  # importing torch takes seconds
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


class Caches:
    """Folders of caches with nothing in them but a profile of the machine, which takes seconds to measure."""

    def __init__(self, folder: Path) -> None:
        from training.tiny import plain_profile  # noqa: PLC0415 (it imports torch)

        profile = plain_profile()
        self.folder, self.numbers = folder, count()  # `mktemp` looks at all folders that are there, each time
        self.name, self.content = profile.machine.path.name, profile.model_dump_json()
        self.of_modules, self.last = self.new(), (folder, [0])

    def new(self) -> Path:
        path = self.folder / str(next(self.numbers))
        (path / "machines").mkdir(parents=True)
        (path / "machines" / self.name).write_text(self.content, encoding="utf-8")
        return path

    def unused(self) -> Path:
        """A new one if the last one was written to: most tests leave it as it was."""
        cache, before = self.last
        with suppress(OSError):
            if changes(cache) == before:
                return cache
        cache = self.new()
        self.last = cache, changes(cache)
        return cache


def changes(cache: Path) -> list[int]:
    machines = cache / "machines"
    return [path.stat().st_ctime_ns for path in (cache, machines, *machines.iterdir())]


@pytest.fixture(scope="session")
def caches(request: pytest.FixtureRequest) -> Iterator[Caches]:
    """The caches of tests, and what else holds for all tests: of each fixture pytest asks at each test.

    Compiled cells are those of all tests, of earlier runs too, as they take seconds; a third of that where the compiler
    leaves out what only makes them fast. The slow tests run what users run. The compiler's options are part of what a
    profile of the machine is for. What fixtures of modules train, before a test has a cache of its own, leaves nothing
    in the user's cache. No run draws pictures, unless its test does.
    """
    from training.tiny_texts import without_pictures  # noqa: PLC0415 (it imports torch)

    factory, cells = request.getfixturevalue("tmp_path_factory"), request.getfixturevalue("kept_folder")("cells")
    cells.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        if not is_thorough(request.config):
            patch.setenv("ENSUE_CFLAGS", f"{' '.join(QUICKLY_COMPILED)} {os.environ.get('ENSUE_CFLAGS', '')}")
        patch.setenv("ENSUE_CELLS", str(cells))
        patch.setattr(tempfile, "tempdir", str(factory.mktemp("temporary")))  # pytest's workers tidy nothing
        patch.setattr(os, "fsync", lambda descriptor: None)  # no test takes away the power
        spare_torch(patch)
        without_pictures(patch)
        found = Caches(factory.mktemp("caches"))
        patch.setenv("ENSUE_CACHE", str(found.of_modules))
        yield found


def spare_torch(patch: pytest.MonkeyPatch) -> None:
    """Leaves out what takes torch seconds for nothing.

    Without a device `torch.manual_seed` writes down the stack at each call, for each of three kinds of devices, which
    takes longer than many a test. To compare tensors of several machines, `torch.testing` imports a part of torch that
    takes a second.
    """
    import torch  # noqa: PLC0415 (seconds)

    for kind in (torch.cuda, torch.xpu, torch.mtia):
        if not kind.is_available():
            patch.setattr(kind, "manual_seed_all", lambda seed: None)
    patch.setattr("torch.testing._comparison._HAS_DTENSOR", False, raising=False)


@pytest.fixture(scope="session")
def new_cache(caches: Caches) -> Callable[[], Path]:
    return caches.new


@pytest.fixture(autouse=True)
def cache_of_its_own(caches: Caches) -> Iterator[None]:
    """No test reads or leaves anything in the user's cache."""
    os.environ["ENSUE_CACHE"] = str(caches.unused())
    forget_what_was_said()
    yield
    os.environ["ENSUE_CACHE"] = str(caches.of_modules)


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


@pytest.fixture
def in_torch_operations() -> Iterator[None]:
    """Nothing is compiled: the tests of the engine compare what is."""
    from ensue.engine import executing  # noqa: PLC0415 (it imports torch)

    with executing("plain"):
        yield


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """Turn off the checks of array types, as in use, so that errors are those of layers."""
    import jaxtyping  # noqa: PLC0415 (only the tests of layers need it)

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def steps_to_learn(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """The steps of a run that only slow tests want to have learned; by default it takes three."""
    return lambda steps: steps if is_thorough(pytestconfig) else 3


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


def is_divided(config: pytest.Config) -> bool:
    """Whether each worker has files of its own."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not is_thorough(config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return OwnTests(config, log) if is_divided(config) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (hasattr(config, "workerinput") and is_divided(config) and is_left_out(collection_path, config)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Nothing of this makes garbage that is worth looking for.

    Where each worker collects all files, it begins with other ones: Python compiles a file once, and the others find it
    compiled. What hypothesis reads in the source of all modules, constants to try, is not worth its seconds for ten
    examples. That UTF-8 can encode all but surrogates it would find out by trying, in a second.
    """
    gc.disable()
    in_utf8 = IntervalSet(((0, 0xD7FF), (0xE000, sys.maxunicode))), IntervalSet(())
    charmap.intervals_from_codec = {"utf-8": in_utf8}.__getitem__
    worker = getattr(session.config, "workerinput", None)
    if not is_thorough(session.config):
        providers._get_local_constants = lambda: providers._local_constants
    elif worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        for file in own_files(worker):
            with suppress(Exception, pytest.skip.Exception):  # which pytest says where it collects the file
                importlib.import_module(".".join(file.relative_to(REPOSITORY / "tests").with_suffix("").parts))


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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        machine_speed().count_test()


@cache
def machine_speed() -> MachineSpeed:
    return MachineSpeed()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Print the part of the slow tests and the processor time of the tests, of workers and other processes too, which
    depends less on other processes than a clock.

    If `ENSUE_TEST_SECONDS` is set, more processor time is a failure, in seconds of the reference machine. A file that
    the tests left in the folder of the repository is one, too.
    """
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if "PYTEST_XDIST_WORKER" in os.environ or reporter is None:
        return
    seconds, bound = sum(os.times()[:4]), float(os.environ.get("ENSUE_TEST_SECONDS", "inf"))
    reference = machine_speed().in_reference_seconds(seconds)
    number, count = part()
    reporter.write_line(f"\npart {number} of {count} of the slow tests" * (count > 1 and is_thorough(session.config)))
    reporter.write_line(
        f"{seconds:.0f} s of processor time, {reference:.0f} s on the reference machine"
        + f", more than {bound:.0f}" * (reference > bound)
    )
    if left := sorted(files_of_the_repository() - session.config.stash[FILES]):
        reporter.write_line(f"the tests have left {', '.join(left)}")
    if (left or reference > bound) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def files_of_the_repository() -> set[str]:
    """The files at the top of the repository, without hidden ones; what is built is in folders."""
    return {path.name for path in REPOSITORY.iterdir() if path.is_file() and not path.name.startswith(".")}


def is_thorough(config: pytest.Config) -> bool:
    """Whether the slow tests are wanted."""
    return "slow" in config.known_args_namespace.markexpr.replace("not slow", "")


def part() -> tuple[int, int]:
    """The part of the slow tests that is wanted, and of how many: `ENSUE_TEST_PART=2/3`, or all."""
    number, _, count = os.environ.get("ENSUE_TEST_PART", "1/1").partition("/")
    return int(number), int(count)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if is_thorough(config) else "few")
    config.stash[FILES] = files_of_the_repository()
    watch()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every property is tried again among the slow tests, with more examples. Of sampled cases most are slow."""
    sampled: dict[str, list[pytest.Item]] = {}
    for item in items:
        if is_thorough(config) and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("slow")
        if item.get_closest_marker("sampled") and not item.get_closest_marker("slow"):
            sampled.setdefault(function(item), []).append(item)
    for cases in sampled.values():
        mark = cases[0].get_closest_marker("sampled")
        assert mark
        default = {place * len(cases) // mark.args[0] for place in range(mark.args[0])}
        always = mark.kwargs.get("always")
        for place, item in enumerate(cases):
            if place not in default and not (always and always in item.name):
                item.add_marker("slow")
    if is_thorough(config) and part()[1] > 1:
        leave_to_other_parts(config, items, *part())


def function(item: pytest.Item) -> str:
    """The name that all cases of a test share."""
    return item.nodeid.partition("[")[0]


def leave_to_other_parts(config: pytest.Config, items: list[pytest.Item], number: int, count: int) -> None:
    """Of the cases of a slow test every `count`th stays, and of a file's tests of one case; at least one of each."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    cases, groups = Counter(map(function, slow)), defaultdict(list)
    for item in slow:
        name = function(item)
        groups[name if cases[name] > 1 else name.partition("::")[0]].append(item)
    left = set()
    for group in groups.values():
        step = min(count, len(group))
        left.update(item for place, item in enumerate(group) if place % step != number % step)
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]
