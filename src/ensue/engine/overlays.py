"""Which arrays are written over others: a gate over its pre-activation, the error at a gate over the gate.

So beside its states a training step of an LSTM has four numbers for a position and unit, not twelve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ensue.engine.program import MOST_KEPT, Array, Program, View
from ensue.engine.schedule import Loop, Schedule, is_stored, schedule


@dataclass(frozen=True)
class Event:
    """A loop, or a product, of a schedule: what it reads and writes."""

    reads: list[View]
    writes: list[View]
    is_loop: bool


@lru_cache(MOST_KEPT)
def overlays(program: Program) -> dict[Array, View]:
    """Where the arrays lie that need no room of their own."""
    forward, backward = (list(_events(schedule(work))) for work in (program.forward, program.backward))
    after_loop = {product.factor.array for product in program.products}
    hoisted = [product.hoisted for product in program.products if product.hoisted]
    found: dict[Array, View] = {}
    for kept in (array for array in program.kept if array not in hoisted):  # those are full before the loop begins
        hosts = [host for host in hoisted if host not in program.kept]
        view = next(_free_slices(kept, hosts, found, forward), None)
        if view is not None:
            found[kept] = view
    for host in dict.fromkeys([*hoisted, *(array for array in program.kept if array not in found)]):
        lying = {array: view for array, view in found.items() if view.array == host} | {host: View(host, 0, host.width)}
        for error in dict.fromkeys(product.error for product in program.products):
            whole = View(host, 0, host.width)
            fits = error.width == host.width and error not in found and not lying.keys() & after_loop
            if fits and _may_replace(lying, {error: whole}, backward):
                found[error] = whole
                break
    return found


def _free_slices(kept: Array, hosts: list[Array], taken: dict[Array, View], events: list[Event]) -> Iterator[View]:
    """Slices of hosts that nothing reads any more when `kept` is written."""
    slices = [view for event in events for view in event.reads if view.array in hosts and view.width == kept.width]
    for view in dict.fromkeys(slices):
        is_free = not any(view.array == other.array and _overlap(view, other) for other in taken.values())
        if is_free and _may_replace({view.array: View(view.array, 0, view.array.width)}, {kept: view}, events):
            yield view


def _may_replace(old: dict[Array, View], new: dict[Array, View], events: list[Event]) -> bool:
    """Whether `new` may be written over `old`, each lying where its view says.

    What lies there has to be read before, or in the same place of the same loop, which reads before it writes.
    """
    reads = [(position, view) for position, event in enumerate(events) for view in _lying(event.reads, old)]
    writes = [(position, view) for position, event in enumerate(events) for view in _lying(event.writes, new)]
    return all(
        read < written or (read == written and events[read].is_loop and view == other) or not _overlap(view, other)
        for read, view in reads
        for written, other in writes
    )


def _lying(views: list[View], where: dict[Array, View]) -> Iterator[View]:
    """The views of arrays that lie in others, as views of those."""
    for view in views:
        if view.array in where:
            host = where[view.array]
            yield View(host.array, host.start + view.start, view.width)


def _overlap(a: View, b: View) -> bool:
    return a.start < b.start + b.width and b.start < a.start + a.width


def _events(plan: Schedule) -> Iterator[Event]:
    for segment in plan.segments:
        for product in segment.products:
            yield Event([product.factor], [product.result], is_loop=False)
        for loops in segment.levels:
            for loop in loops.values():  # sums of several features begin with zeros, before anything is read
                yield Event([], [plan.views[node] for node in loop.sums if is_stored(node)], is_loop=False)
                yield Event(
                    list(_read(loop, plan)), [view for _, view in (*loop.writes, *loop.sums_written)], is_loop=True
                )


def _read(loop: Loop, plan: Schedule) -> Iterator[View]:
    for node in sorted(loop.arguments() - set(loop.nodes), key=lambda node: node.order):
        view = plan.view(node)
        if view is not None:
            yield view
