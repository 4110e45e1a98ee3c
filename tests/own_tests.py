"""Distribution of test files to workers of pytest-xdist, so that a worker collects only the files that it runs.

Collecting all files takes seconds in each worker. `EachScheduling` is the scheduler of pytest-xdist that allows workers
to collect different tests.
"""

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import EachScheduling

TESTS = Path(__file__).parent
FILES: pytest.StashKey[frozenset[Path]] = pytest.StashKey()
TOGETHER = (
    ("cli", "laws", "test_docs.py"),
    (
        *("extensions", "metrics", "models/test_ngram_bag.py", "test_sequence_pipeline.py"),
        *("test_floor_plan.py", "test_figures.py", "test_troubleshooting.py"),  # tests that read all source
    ),
)
"""Groups of folders and files that share fixtures, imports or parsed source; the others are distributed one by one."""
FREE: list[int] = []
"""The indices of crashed workers, which their replacements take."""


class FilesByWorker(EachScheduling):  # type: ignore[misc]
    """A scheduler in which each worker runs the tests that it has collected."""

    def schedule(self) -> None:
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()


def pytest_configure_node(node: Any) -> None:
    node.workerinput["place"] = FREE.pop() if FREE else int(node.workerinput["workerid"][2:])


def pytest_testnodedown(node: Any) -> None:
    FREE.append(node.workerinput["place"])


def own_files(worker: dict[str, Any]) -> list[Path]:
    """Return the test files of a worker from its `workerinput`."""
    place, count, single, in_groups = worker["place"], worker["workercount"], [], []
    for path in sorted(TESTS.rglob("test_*.py")):
        group = [n for n, names in enumerate(TOGETHER) if any(path.is_relative_to(TESTS / name) for name in names)]
        if not group:
            single.append(path)
        elif group[0] % count == place:
            in_groups.append(path)
    return [*in_groups, *single[place::count]]


def is_of_another_worker(path: Path, config: pytest.Config) -> bool:
    """Return whether a test file belongs to another worker."""
    if FILES not in config.stash:
        worker: Any = config
        config.stash[FILES] = frozenset(own_files(worker.workerinput))
    return path.is_file() and path not in config.stash[FILES]
