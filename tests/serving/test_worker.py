"""What computes text by text: each request in its turn, and nothing for a request that is over."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from ensue.interruption import check_interrupted
from ensue.serving.admission import Traffic
from ensue.serving.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("worker of a test", Traffic())
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
        calls = [worker.computed(map(divided, some), len(some)) for some in ([3, 2, 1], [0], [6])]
        asked = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        begin.set()
        return list(await asked)

    long, failed, short = asyncio.run(ask())
    assert (long, type(failed), short) == ([2, 3, 6], ZeroDivisionError, [1])
    assert order == [3, 0, 6, 2, 1]
    assert asyncio.run(worker.computed(iter([]), 0)) == []


def test_nothing_is_computed_for_a_request_that_is_over(worker: Worker) -> None:
    begun, wait, done = threading.Event(), threading.Event(), []

    def work(n: int) -> int:
        begun.set()
        wait.wait(10)
        check_interrupted()
        done.append(n)
        return n

    async def ask() -> None:
        first = asyncio.ensure_future(worker.computed(map(work, [1, 2]), 2))
        second = asyncio.ensure_future(worker.computed(map(work, [3]), 1))
        await asyncio.to_thread(begun.wait, 10)
        first.cancel()
        await asyncio.sleep(0)
        wait.set()
        assert await second == [3]
        assert await worker.computed(map(work, [4]), 1) == [4]

    asyncio.run(ask())
    assert done == [3, 4]  # the first was given up in the midst of a piece
    check_interrupted()  # of no concern to other threads


def test_what_takes_long_rests_while_requests_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.serving.worker.LONG_SECONDS", 0.0)
    monkeypatch.setattr("ensue.serving.admission.DENSE_SECONDS", 60.0)
    traffic, order = Traffic(), list[str]()
    made = Worker("worker of a test", traffic)

    def work(name: str) -> float:
        time.sleep(0.05)
        order.append(name)
        return time.monotonic()

    async def ask() -> list[float]:
        long = asyncio.ensure_future(made.computed(map(work, ["long", "long"]), 2))
        while not order:
            await asyncio.sleep(0.001)
        await made.computed(map(work, ["short"]), 1)
        return await long

    traffic.came()
    first, second = asyncio.run(ask())
    made.close()
    assert order == ["long", "short", "long"]
    assert second - first >= 0.19  # three times 0.05 of rest, and the work


def test_many_long_requests_do_not_keep_a_short_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have a quarter of the thread together, however many they are."""
    monkeypatch.setattr("ensue.serving.worker.LONG_SECONDS", 0.0)
    monkeypatch.setattr("ensue.serving.admission.DENSE_SECONDS", 60.0)
    traffic, order = Traffic(), list[str]()
    made = Worker("worker of a test", traffic)

    def work(name: str) -> None:
        time.sleep(0.02)
        order.append(name)

    async def ask() -> None:
        long = [asyncio.ensure_future(made.computed(map(work, ["long"] * 2), 2)) for _ in range(4)]
        await asyncio.sleep(0)
        await made.computed(map(work, ["short"]), 1)
        await asyncio.gather(*long)

    traffic.came()
    asyncio.run(ask())
    made.close()
    assert order == ["long"] * 4 + ["short"] + ["long"] * 4
