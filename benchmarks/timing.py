"""Timing of functions in turns.

Functions that are compared are called one after another in each turn, so that the load of the machine affects all of
them equally.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


def elapsed(call: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    """Return the seconds of one call, of processor time unless `clock` is another clock."""
    start = clock()
    call()
    return clock() - start


def take_turns(
    measures: Mapping[Key, Callable[[], Result]], turns: int, *, seconds: float = 0.0, warm_up: int = 0
) -> dict[Key, list[Result]]:
    """Call functions in turns. Return the results of each function.

    Args:
        measures: Functions that measure something.
        turns: The minimum number of turns.
        seconds: The minimum time of all turns.
        warm_up: The number of further turns before the others; their results are dropped.
    """
    results: dict[Key, list[Result]] = {key: [] for key in measures}
    for _ in range(warm_up):
        for measure in measures.values():
            measure()
    start, turn = time.perf_counter(), 0
    while turn < turns or time.perf_counter() - start < seconds:
        for key, measure in measures.items():
            results[key].append(measure())
        turn += 1
    return results


def time_in_turns(
    calls: Mapping[Key, Callable[[], Any]], turns: int, *, seconds: float = 0.0, warm_up: int = 0,
    clock: Callable[[], float] = time.process_time,
) -> dict[Key, list[float]]:  # fmt: skip
    """Return the seconds of each call by function, as `take_turns` does."""
    measures = {key: partial(elapsed, call, clock) for key, call in calls.items()}
    return take_turns(measures, turns, seconds=seconds, warm_up=warm_up)


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratio of each turn."""
    return [numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True)]
