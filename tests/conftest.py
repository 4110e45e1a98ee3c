"""Hooks of pytest and fixtures for all tests."""

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

from forgetting import forget_notices
from leftovers import watch
from machine_speed import MachineSpeed
from own_tests import FilesByWorker, is_of_another_worker, own_files, pytest_configure_node, pytest_testnodedown
from without_extensions import hide

__all__ = ["pytest_configure_node", "pytest_testnodedown"]


def only_distributes() -> bool:
    """Return whether this process runs no tests itself, but distributes them to workers of pytest-xdist."""
    option = re.search(r" (-n|--numprocesses)[ =]?(?!0\b)\w", " ".join(sys.argv))
    return option is not None and not {"PYTEST_XDIST_WORKER", "--pdb"} & {*os.environ, *sys.argv}


pytest_plugins = [] if only_distributes() else ["command_fixtures"]  # which imports torch, in seconds

# The tensors of tests are small; threads would only wait for each other. torch reads the variable at its import.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if hidden := os.environ.get("ENSUE_TEST_WITHOUT"):
    hide(hidden.split(","))

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = pytest.StashKey[set[str]]()
IS_GCC = "gcc" in os.path.realpath(shutil.which("cc") or "") and "CC" not in os.environ
QUICKLY_COMPILED = ["-Og", *["-fira-region=one"] * IS_GCC]
"""The second option saves up to a third of the compile time of large cells; only gcc has it."""


def check_signatures() -> None:
    """Check types and array shapes in the signatures of the layers at each call.

    Only slow tests do so: the checks would make the default tests a fifth slower. The engine, `border` and `taps`
    annotate no shapes. An int is accepted for a float, as in PEP 484.
    """
    import jaxtyping  # noqa: PLC0415

    from signatures import checked  # noqa: PLC0415

    files = {path.relative_to(REPOSITORY / "src") for path in (REPOSITORY / "src" / "ensue" / "nn").rglob("[a-z]*.py")}
    layers = sorted({".".join(path.with_suffix("").parts) for path in files} - {"ensue.nn.border", "ensue.nn.taps"})
    jaxtyping.install_import_hook(layers, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
    jaxtyping.jaxtyped = checked


if "PYTEST_XDIST_WORKER" in os.environ:  # registered first, so called last: exit without freeing each object
    atexit.register(os._exit, 0)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Install the checks in the earliest hook, since the conftest.py of a folder may import layers."""
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
    """Return a function that makes a folder kept for later runs of the tests, unless `-p no:cacheprovider` is given."""
    cache = getattr(pytestconfig, "cache", None)
    return cache.mkdir if cache else tmp_path_factory.mktemp


class Caches:
    """Cache folders that contain only a profile of the machine, which takes seconds to measure."""

    def __init__(self, folder: Path) -> None:
        from training.tiny import plain_profile  # noqa: PLC0415 (it imports torch)

        profile = plain_profile()
        self.folder, self.numbers = folder, count()  # `mktemp` lists all earlier folders at each call
        self.name, self.content = profile.machine.path.name, profile.model_dump_json()
        self.of_modules, self.last = self.new(), (folder, [0])

    def new(self) -> Path:
        path = self.folder / str(next(self.numbers))
        (path / "machines").mkdir(parents=True)
        (path / "machines" / self.name).write_text(self.content, encoding="utf-8")
        return path

    def unused(self) -> Path:
        """Return the last folder if nothing was written to it, as after most tests, or a new one."""
        cache, before = self.last
        with suppress(OSError):
            if self.change_times(cache) == before:
                return cache
        cache = self.new()
        self.last = cache, self.change_times(cache)
        return cache

    def change_times(self, cache: Path) -> list[int]:
        return [os.stat(f"{cache}/{name}").st_ctime_ns for name in ("", "machines", f"machines/{self.name}")]


@pytest.fixture(scope="session")
def caches(request: pytest.FixtureRequest) -> Iterator[Caches]:
    """Yield the caches of tests, with environment variables and patches for all tests.

    One fixture does all this, since pytest spends time on each fixture at each test. Compiled cells are shared by all
    tests and by later runs. By default they are compiled without optimization, which takes a third of the time, and
    solvers evaluate few weights; the slow tests compile and solve as users do. Fixtures of modules use the cache
    `of_modules`, not the user's. No run draws pictures unless a test asks for them.
    """
    from training.tiny_texts import with_few_evaluations, without_pictures  # noqa: PLC0415 (it imports torch)

    factory, cells = request.getfixturevalue("tmp_path_factory"), request.getfixturevalue("kept_folder")("cells")
    cells.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        if not is_thorough(request.config):
            patch.setenv("ENSUE_CFLAGS", f"{' '.join(QUICKLY_COMPILED)} {os.environ.get('ENSUE_CFLAGS', '')}")
            with_few_evaluations(patch)
        patch.setenv("ENSUE_CELLS", str(cells))
        patch.setattr(tempfile, "tempdir", str(factory.mktemp("temporary")))  # workers of xdist do not remove it
        patch.setattr(os, "fsync", lambda descriptor: None)  # no test simulates a power failure
        spare_torch(patch)
        without_pictures(patch)
        folders = Caches(factory.mktemp("caches"))
        patch.setenv("ENSUE_CACHE", str(folders.of_modules))
        yield folders


def spare_torch(patch: pytest.MonkeyPatch) -> None:
    """Skip work of torch that tests do not need.

    On a machine without accelerators, `torch.manual_seed` records the stack at each call for each of three kinds of
    devices, which takes longer than many tests. `torch.testing` imports the distributed tensors of torch, which takes
    a second.
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
def own_cache(caches: Caches) -> Iterator[None]:
    """Give each test an empty cache instead of the user's, and forget which notices were given."""
    os.environ["ENSUE_CACHE"] = str(caches.unused())
    forget_notices()
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
    """Replace the fixture of pytest, which lists the folders of all earlier tests."""
    return new_folder()


@pytest.fixture
def in_torch_operations() -> Iterator[None]:
    """Execute with operations of torch, without compiled code, which the tests of the engine compare."""
    from ensue.engine import executing  # noqa: PLC0415 (it imports torch)

    with executing("plain"):
        yield


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """Turn off the checks of array shapes, as for users, so that the layers raise their own errors."""
    import jaxtyping  # noqa: PLC0415 (only the tests of layers need it)

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def steps_to_learn(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """Return a function of the training steps: unchanged in slow tests, which test what was learned, 3 by default."""
    return lambda steps: steps if is_thorough(pytestconfig) else 3


settings.register_profile("few", max_examples=10, deadline=None)  # other processes make single examples slow
settings.register_profile("many", max_examples=200, deadline=None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let a worker send one event for a test that passes, not five, each of which takes as long as a small test."""
    plugins, options = session.config.pluginmanager.get_plugins(), session.config.option
    worker: Any = next((plugin for plugin in plugins if type(plugin).__name__ == "WorkerInteractor"), None)
    if worker is None or options.durations or options.xmlpath:
        return
    send = worker.sendevent

    def send_needed(name: str, **content: Any) -> None:
        passes = name == "testreport" and content["data"]["outcome"] == "passed" and content["data"]["when"] != "call"
        if name not in ("logstart", "logfinish") and not passes:
            send(name, **content)

    worker.sendevent = send_needed


def is_divided(config: pytest.Config) -> bool:
    """Return whether each worker collects and runs its own files."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not is_thorough(config)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return FilesByWorker(config, log) if is_divided(config) else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (
        hasattr(config, "workerinput") and is_divided(config) and is_of_another_worker(collection_path, config)
    ) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Make the collection faster.

    It leaves little garbage, so the collector is off. Where each worker collects all files, each imports its own files
    first, so that every file is compiled once. Hypothesis does not search all source for constants, which takes
    seconds, unless there are many examples, and need not find the characters of UTF-8 by trial.
    """
    gc.disable()
    in_utf8 = IntervalSet(((0, 0xD7FF), (0xE000, sys.maxunicode))), IntervalSet(())
    charmap.intervals_from_codec = {"utf-8": in_utf8}.__getitem__
    worker = getattr(session.config, "workerinput", None)
    if not is_thorough(session.config):
        providers._get_local_constants = lambda: providers._local_constants
    elif worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        for file in own_files(worker):
            with suppress(Exception, pytest.skip.Exception):  # pytest reports it when it collects the file
                importlib.import_module(".".join(file.relative_to(REPOSITORY / "tests").with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exclude all objects that exist before the tests from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Shorten the two garbage collections that pytest runs at its end."""
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        machine_speed().count_test()


@cache
def machine_speed() -> MachineSpeed:
    return MachineSpeed()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Print which part of the slow tests ran, and the processor time of the tests and of their child processes.

    The session fails if that time exceeds `ENSUE_TEST_SECONDS`, in seconds of the reference machine, or if the tests
    left a file in the folder of the repository.
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
    """Return the names of the files at the top of the repository, except hidden files."""
    return {path.name for path in REPOSITORY.iterdir() if path.is_file() and not path.name.startswith(".")}


def is_thorough(config: pytest.Config) -> bool:
    """Return whether the slow tests are selected."""
    return "slow" in config.known_args_namespace.markexpr.replace("not slow", "")


def part() -> tuple[int, int]:
    """Return (2, 3) for `ENSUE_TEST_PART=2/3`, part 2 of 3 of the slow tests, or (1, 1) for all."""
    number, _, count = os.environ.get("ENSUE_TEST_PART", "1/1").partition("/")
    return int(number), int(count)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if is_thorough(config) else "few")
    config.stash[FILES] = files_of_the_repository()
    watch()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow most cases of `sampled` tests and, in slow runs, property tests, which then have more examples."""
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
    """Return the id of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def leave_to_other_parts(config: pytest.Config, items: list[pytest.Item], number: int, count: int) -> None:
    """Deselect slow tests of other parts.

    Every `count`th case of each slow test stays, and every `count`th of a file's tests with a single case, at least one
    of each group.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    cases, groups = Counter(map(function, slow)), defaultdict(list)
    for item in slow:
        name = function(item)
        groups[name if cases[name] > 1 else name.partition("::")[0]].append(item)
    deselected = set()
    for group in groups.values():
        step = min(count, len(group))
        deselected.update(item for place, item in enumerate(group) if place % step != number % step)
    config.hook.pytest_deselected(items=list(deselected))
    items[:] = [item for item in items if item not in deselected]
