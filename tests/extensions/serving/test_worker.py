"""The worker thread, which computes item by item: requests take turns, and canceled requests end."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from ensue.extensions.serving.worker import Traffic, Worker
from ensue.interruption import check_interrupted


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker_of_test = Worker("worker of a test")
    yield worker_of_test
    worker_of_test.close()


def test_requests_take_turns_and_fail_alone(worker: Worker) -> None:
    order: list[int] = []
    begin = threading.Event()

    def divided(n: int) -> int:
        begin.wait(10)
        order.append(n)
        return 6 // n

    async def ask() -> list[object]:
        calls = [worker.compute(map(divided, numbers), len(numbers)) for numbers in ([3, 2, 1], [0], [6])]
        gathered = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        begin.set()
        return list(await gathered)

    long, failed, short = asyncio.run(ask())
    assert (long, type(failed), short) == ([2, 3, 6], ZeroDivisionError, [1])
    assert order == [3, 0, 6, 2, 1]
    assert asyncio.run(worker.compute(iter([]), 0)) == []


def test_a_canceled_request_computes_nothing_more(worker: Worker) -> None:
    begun, wait, done = threading.Event(), threading.Event(), []

    def work(n: int) -> int:
        begun.set()
        wait.wait(10)
        check_interrupted()
        done.append(n)
        return n

    async def ask() -> None:
        first = asyncio.ensure_future(worker.compute(map(work, [1, 2]), 2))
        second = asyncio.ensure_future(worker.compute(map(work, [3]), 1))
        await asyncio.to_thread(begun.wait, 10)
        first.cancel()
        await asyncio.sleep(0)
        wait.set()
        assert await second == [3]
        assert await worker.compute(map(work, [4]), 1) == [4]

    asyncio.run(ask())
    assert done == [3, 4]  # the first request was canceled during an item
    check_interrupted()  # does not raise in other threads


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker of long requests that pauses between slices, since a request has arrived in the last minute."""
    monkeypatch.setattr("ensue.extensions.serving.worker.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("ensue.extensions.serving.worker.RECENT_SECONDS", 60.0)
    traffic = Traffic()
    traffic.record_request()
    worker_of_test = Worker("long of a test", traffic=traffic)
    yield worker_of_test
    worker_of_test.close()


@pytest.mark.parametrize("within", [False, True], ids=["between", "within"])
def test_long_requests_compute_a_quarter_of_the_time(long: Worker, within: bool) -> None:
    """The pauses are after an item, or within an item at `check_interrupted`."""
    ends: list[float] = []

    def work(times: int) -> None:
        for _ in range(times):
            time.sleep(0.01)
            ends.append(time.monotonic())
            check_interrupted()

    works = [3] if within else [1] * 3
    begin = time.monotonic()
    asyncio.run(long.compute(map(work, works), len(works)))
    assert ends[2] - begin >= 0.01 * (1 + 4 + 4)


def test_a_request_canceled_during_a_pause_frees_the_thread(long: Worker) -> None:
    done: list[str] = []

    def work(name: str) -> None:
        for _ in range(1000):
            time.sleep(0.001)
            check_interrupted()
        done.append(name)

    async def ask() -> list[None]:
        abandoned = asyncio.ensure_future(long.compute(map(work, ["gone"] * 2), 2))
        await asyncio.sleep(0.02)
        abandoned.cancel()
        return await long.compute(map(done.append, ["next"]), 1)

    asyncio.run(ask())
    assert done == ["next"]


def test_long_requests_move_to_another_thread(long: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After their first item, or at once if they are known to be long, so that they do not delay short requests."""
    monkeypatch.setattr("ensue.extensions.serving.worker.MIN_LONG_SECONDS", 0.0)
    worker_of_test, threads = Worker("worker of a test", long=long), list[str]()

    def work(n: int) -> None:
        time.sleep(0.001)
        threads.append(threading.current_thread().name)

    async def ask() -> None:
        await asyncio.gather(*(worker_of_test.compute(map(work, [0, 1]), 2) for _ in range(4)))
        await worker_of_test.compute(map(work, [0]), 1, is_long=True)

    asyncio.run(ask())
    worker_of_test.close()
    assert sorted(threads) == ["long of a test"] * 5 + ["worker of a test"] * 4
