"""What computes at a stroke: in a thread, or at once if it is known to be quick."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ensue.engine import HeldWeights
from ensue.serving.worker import SMALL, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("worker of a test", HeldWeights())
    yield made
    made.close()


def test_one_after_another_and_each_with_its_own_end(worker: Worker) -> None:
    order: list[int] = []

    async def ask() -> list[object]:
        calls = [worker.computed(lambda n=n: order.append(n) or 6 // n, "/v1/score", 1) for n in (3, 0, 2)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    first, failed, last = asyncio.run(ask())
    assert (first, type(failed), last, order) == (2, ZeroDivisionError, 3, [3, 0, 2])


def test_what_is_cancelled_before_its_turn_is_not_called(worker: Worker) -> None:
    begun, wait, called = threading.Event(), threading.Event(), []

    async def ask() -> None:
        first = asyncio.ensure_future(worker.computed(lambda: begun.set() or wait.wait(10), "/v1/score", 1))
        second = asyncio.ensure_future(worker.computed(lambda: called.append(2), "/v1/score", 1))
        await asyncio.to_thread(begun.wait, 10)
        assert not worker.is_quick("/v1/score", 1)  # something waits
        second.cancel()
        wait.set()
        await first
        await worker.computed(lambda: called.append(3), "/v1/score", 1)

    asyncio.run(ask())
    assert called == [3]


def test_only_what_was_quick_is_done_at_once(worker: Worker) -> None:
    assert not worker.is_quick("/v1/predict", 1)
    asyncio.run(worker.computed(lambda: None, "/v1/predict", 1))
    assert worker.is_quick("/v1/predict", SMALL)
    assert not worker.is_quick("/v1/predict", SMALL + 1)
    assert not worker.is_quick("/v1/inspect", 1)
    worker.at_once(lambda: sum(range(2_000_000)), "/v1/predict", 1)
    assert not worker.is_quick("/v1/predict", 1)
