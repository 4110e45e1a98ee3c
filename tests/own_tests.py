"""In a default run of all tests each worker has files of its own: to collect those of the others takes seconds.

pytest-xdist wants the same tests of all workers, but where each runs all that it has.
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
        *("test_floor_plan.py", "test_figures.py", "test_troubleshooting.py"),  # which read all source
    ),
)
"""Folders and files whose fixtures, imports or reading take seconds; the others are dealt out."""
FREE: list[int] = []
"""The places of workers that have crashed, which their successors take."""


class OwnTests(EachScheduling):  # type: ignore[misc]
    """Each worker runs what it has collected."""

    def schedule(self) -> None:
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()


def pytest_configure_node(node: Any) -> None:
    node.workerinput["place"] = FREE.pop() if FREE else int(node.workerinput["workerid"][2:])


def pytest_testnodedown(node: Any) -> None:
    FREE.append(node.workerinput["place"])


def own_files(worker: dict[str, Any]) -> list[Path]:
    """The test files of a worker, by its `workerinput`."""
    place, count, dealt, own = worker["place"], worker["workercount"], [], []
    for path in sorted(TESTS.rglob("test_*.py")):
        group = [n for n, names in enumerate(TOGETHER) if any(path.is_relative_to(TESTS / name) for name in names)]
        if not group:
            dealt.append(path)
        elif group[0] % count == place:
            own.append(path)
    return [*own, *dealt[place::count]]


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a file of tests is another worker's."""
    if FILES not in config.stash:
        worker: Any = config
        config.stash[FILES] = frozenset(own_files(worker.workerinput))
    return path.is_file() and path not in config.stash[FILES]
