"""What computes text by text: each request in its turn, and nothing for a request that is over."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from ensue.extensions.serving.worker import Traffic, Worker
from ensue.interruption import check_interrupted


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("worker of a test")
    yield made
    made.close()


def test_each_in_its_turn_and_with_its_own_end(worker: Worker) -> None:
    order: list[int] = []
    begin = threading.Event()

    def divided(n: int) -> int:
        begin.wait(10)
        order.append(n)
        return 6 // n

    async def ask() -> list[object]:
        calls = [worker.compute(map(divided, some), len(some)) for some in ([3, 2, 1], [0], [6])]
        asked = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        begin.set()
        return list(await asked)

    long, failed, short = asyncio.run(ask())
    assert (long, type(failed), short) == ([2, 3, 6], ZeroDivisionError, [1])
    assert order == [3, 0, 6, 2, 1]
    assert asyncio.run(worker.compute(iter([]), 0)) == []


def test_nothing_is_computed_for_a_request_that_is_over(worker: Worker) -> None:
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
    assert done == [3, 4]  # the first was given up in the midst of a piece
    check_interrupted()  # of no concern to other threads


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """What rests as long as requests come, and they come for a minute."""
    monkeypatch.setattr("ensue.extensions.serving.worker.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("ensue.extensions.serving.worker.RECENT_SECONDS", 60.0)
    traffic = Traffic()
    traffic.record_request()
    made = Worker("long of a test", traffic=traffic)
    yield made
    made.close()


@pytest.mark.parametrize("within", [False, True], ids=["between", "within"])
def test_what_takes_long_works_a_quarter_of_the_time(long: Worker, within: bool) -> None:
    """It rests after a piece, and within one, where that looks up."""
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


def test_who_leaves_a_rest_frees_the_thread(long: Worker) -> None:
    done: list[str] = []

    def work(name: str) -> None:
        for _ in range(1000):
            time.sleep(0.001)
            check_interrupted()
        done.append(name)

    async def ask() -> list[None]:
        gone = asyncio.ensure_future(long.compute(map(work, ["gone"] * 2), 2))
        await asyncio.sleep(0.02)
        gone.cancel()
        return await long.compute(map(done.append, ["next"]), 1)

    asyncio.run(ask())
    assert done == ["next"]


def test_long_requests_do_not_keep_a_short_one_out(long: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are: after a piece, or at once where they are known to be long, they go on elsewhere."""
    monkeypatch.setattr("ensue.extensions.serving.worker.MIN_LONG_SECONDS", 0.0)
    made, threads = Worker("worker of a test", long=long), list[str]()

    def work(n: int) -> None:
        time.sleep(0.001)
        threads.append(threading.current_thread().name)

    async def ask() -> None:
        await asyncio.gather(*(made.compute(map(work, [0, 1]), 2) for _ in range(4)))
        await made.compute(map(work, [0]), 1, is_long=True)

    asyncio.run(ask())
    made.close()
    assert sorted(threads) == ["long of a test"] * 5 + ["worker of a test"] * 4
