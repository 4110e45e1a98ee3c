"""Which arrays may lie in others: a gate where its pre-activation was, the error at a gate where the gate was.

So a training step of an LSTM holds, beside its states, room for four numbers a position and unit, not for twelve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ensue.nn.engine.graph import Node
from ensue.nn.engine.program import Array, Program
from ensue.nn.engine.schedule import Loop, Schedule, View, schedule


@dataclass(frozen=True)
class Event:
    """A loop, or a product, of a schedule: what it reads and writes."""

    reads: list[View]
    writes: list[View]
    is_loop: bool


def shared(program: Program) -> dict[Array, View]:
    """Where the arrays lie that need no room of their own."""
    forward, backward = (list(_events(schedule(work))) for work in (program.forward, program.backward))
    later = {*program.backward.reads.values(), *(product.factor for product in program.products)}
    hosts = [product.hoisted for product in program.products if product.hoisted and product.hoisted not in later]
    found: dict[Array, View] = {}
    for kept in program.kept:
        view = next(_free_places(kept, hosts, found, forward), None)
        if view is not None:
            found[kept] = view
    for host in hosts:
        errors = [product.error for product in program.products if product.error.width == host.width]
        for error in dict.fromkeys(errors):
            if error not in found and _may_lie_in(host, error, found, program, backward):
                found[error] = View(host, 0, host.width)
                break
    return found


def _may_lie_in(host: Array, error: Array, found: dict[Array, View], program: Program, events: list[Event]) -> bool:
    """Whether the error at a product may lie where all else that lies in `host` is read for the last time."""
    guests = {guest: view for guest, view in found.items() if view.array == host}
    read_after = {product.factor for product in program.products}
    return not guests.keys() & read_after and all(
        _may_replace(guest, View(error, view.start, view.width), events) for guest, view in guests.items()
    )


def _free_places(kept: Array, hosts: list[Array], taken: dict[Array, View], events: list[Event]) -> Iterator[View]:
    """Slices of hosts that nothing reads any more when `kept` is written; first those that are read just then."""
    slices = [view for event in events for view in event.reads if view.array in hosts and view.width == kept.width]
    for view in dict.fromkeys(slices):
        is_free = not any(view.array == other.array and _overlap(view, other) for other in taken.values())
        if is_free and _may_replace(view, View(kept, 0, kept.width), events):
            yield view


def _may_replace(old: Array | View, new: View, events: list[Event]) -> bool:
    """Whether all that is read of `old` is read before `new` is written, or in the same place of the same loop."""
    old = View(old, 0, old.width) if isinstance(old, Array) else old
    for first, event in enumerate(events):
        if not any(view.array == new.array and _overlap(view, new) for view in event.writes):
            continue
        for place, other in enumerate(events):
            for view in other.reads:
                if view.array == old.array and _overlap(view, old) and not _is_before(place, view, first, old, event):
                    return False
        if not all(_is_aligned(view, new) for view in event.writes if view.array == new.array):
            return False
    return True


def _is_before(place: int, view: View, first: int, old: View, event: Event) -> bool:
    return place < first or (place == first and event.is_loop and (view.start, view.width) == (old.start, old.width))


def _is_aligned(view: View, new: View) -> bool:
    """Whether a view covers all of `new`, feature by feature, or nothing of it."""
    return not _overlap(view, new) or (view.start, view.width) == (new.start, new.width)


def _overlap(a: View, b: View) -> bool:
    return a.start < b.start + b.width and b.start < a.start + a.width


def _events(plan: Schedule) -> Iterator[Event]:
    for segment in plan.segments:
        for product in segment.products:
            yield Event([product.factor], [product.result], is_loop=False)
        for loops in segment.levels:
            for loop in loops.values():
                yield Event(list(_read(loop, plan)), [view for _, view in loop.writes], is_loop=True)


def _read(loop: Loop, plan: Schedule) -> Iterator[View]:
    nodes: list[Node] = [arg for node in loop.nodes for arg in node.args]
    nodes += [node.args[0] for node in loop.sums] + [node for node, _ in loop.writes]
    for node in nodes:
        if node not in loop.nodes:
            view = plan.view(node)
            if view is not None:
                yield view
