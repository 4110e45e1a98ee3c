"""The order in which a pass computes one position, and the arrays that share memory.

A position is a sequence of segments. A segment begins with products over all rows; then its loops run row by row, while
a row is in the cache. A loop runs over the features of a row and computes the values of one level and width. A value
that reads features at other indices (a product, sum, slice, `cat` or spread) has a higher level than its arguments.

A cheap value, such as a sum of two values in arrays, is recomputed in every loop that reads it, since recomputing takes
less time than writing and reading.

Some arrays share memory (`overlays`): a gate replaces its pre-activation, and the error at a gate replaces the gate. So
a training step of an LSTM stores four numbers for each position and unit, not twelve, in addition to its states.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ensue.engine.graph import COSTLY, OPERATIONS, PRODUCTS, Node, reachable
from ensue.engine.program import MAX_CACHED_PROGRAMS, Array, Pass, Program, View


@dataclass(frozen=True)
class Multiply:
    """A product `result = factor @ matrix` over all rows."""

    factor: View
    matrix: int
    transposed: bool
    result: View


@dataclass
class Loop:
    """A loop over `width` features of a row, with the values, sums and writes of each feature."""

    width: int
    nodes: list[Node] = field(default_factory=list)
    sums: list[Node] = field(default_factory=list)
    writes: list[tuple[Node, View]] = field(default_factory=list)
    sums_written: list[tuple[Node, View]] = field(default_factory=list)
    """Sums of width 1, which are written after the loop."""

    def arguments(self) -> set[Node]:
        """Return the nodes that are read or computed in the loop, without its sums."""
        arguments = {arg for node in [*self.nodes, *self.sums] for arg in node.args}
        return arguments | {node for node, _ in self.writes}

    def reads(self, node: Node) -> bool:
        """Return whether the loop reads a node, or a slice or spread of it."""
        return any(source == node for arg in self.arguments() for source in find_sources(arg))


@dataclass
class Segment:
    """A segment of a position: products over all rows, then loops that run row by row."""

    products: list[Multiply] = field(default_factory=list)
    levels: list[dict[int, Loop]] = field(default_factory=list)
    """The loops of each level, by width. Loops of width 1 come first: they compute scalars of the row."""


@dataclass
class Schedule:
    """The segments of a pass, the arrays that they read and write, and the view where each value is stored."""

    segments: list[Segment]
    arrays: list[Array]
    views: dict[Node, View]

    def view(self, node: Node) -> View | None:
        """Return the view from which a loop reads a value; None for constants and scalars of the row."""
        if node in self.views or node.op not in ("slice", "spread"):
            return self.views.get(node)
        source = self.view(node.args[0])
        if node.op == "spread":
            return source
        return None if source is None else View(source.array, source.start + node.index, node.width)


def find_sources(node: Node) -> Iterator[Node]:
    """Yield a node and, if it is a slice or spread, its sources, recursively."""
    yield node
    if node.op in ("slice", "spread"):
        yield from find_sources(node.args[0])


def is_stored(node: Node) -> bool:
    """Return whether a node is always in an array: a product, or a sum whose result has several features."""
    return node.op in PRODUCTS or (node.op == "sum" and node.width > 1)


def schedule(work: Pass) -> Schedule:
    """Return the schedule of a pass."""
    return _Scheduler(work).schedule()


class _Scheduler:
    """The construction of a schedule: of levels, then of the values that need an array, then of loops."""

    def __init__(self, work: Pass) -> None:
        self.work = work
        self.views = {node: View(array, 0, array.width) for node, array in work.reads.items()}
        self.writes: dict[Node, list[View]] = defaultdict(list)
        for node, array in work.writes:
            self.writes[node].append(View(array, 0, array.width))
        nodes = reachable([node for node, _ in work.writes], leaves=work.reads)
        self.nodes = [node for node in nodes if node not in work.reads and node.op != "constant"]
        self.levels: dict[Node, int] = {}
        for node in self.nodes:
            self.levels[node] = self._compute_level(node)
        begins = {self.levels[node] for node in self.nodes if node.op in PRODUCTS} - {0}
        depth = max([0, *self.levels.values()]) + 1
        self.segment_of = [sum(begin <= level for begin in begins) for level in range(depth)]
        self.cheap: set[Node] = set()  # loops recompute these nodes from arguments that are cheap, or stay in arrays
        for node in self.nodes:
            is_candidate = node.op in OPERATIONS and node.op not in COSTLY and node.width != 1
            if is_candidate and all(x.width == 1 or x in self.cheap or self._stays_stored(x) for x in node.args):
                self.cheap.add(node)
        self._set_views()

    def _stays_stored(self, node: Node) -> bool:
        if node.op in ("slice", "spread"):
            (source,) = node.args
            is_overwritten = source in self.views and self.views[source].array.name == "error state"
            is_written = node.op == "spread" and self._is_looped(source)
            return not is_overwritten and (is_written or self._stays_stored(source))
        return node in self.views or is_stored(node) or node.op == "constant"

    def _level_of(self, node: Node) -> int:
        return self.levels.get(node, 0)

    def _compute_level(self, node: Node) -> int:
        if node.op in PRODUCTS or node.op in ("slice", "spread"):
            (arg,) = node.args
            return self._level_of(arg) + self._is_looped(arg)
        return max(map(self._level_of, node.args)) + (node.op in ("cat", "sum"))

    def _is_looped(self, node: Node) -> bool:
        """Return whether a loop computes the node, so that only a write puts it into an array."""
        return node in self.levels and not is_stored(node) and node.op not in ("slice", "spread", "cat")

    def _set_views(self) -> None:
        for node in self.nodes:
            if node.op == "cat":
                self._set_view_of_cat(node)
        for node in self.nodes:
            if is_stored(node):
                self.views[node] = self._choose_view(node)
        for node in self.nodes:
            for arg in node.args:
                if self._is_looped(arg) and self._is_read_later(arg, node):
                    self.views[arg] = self._choose_view(arg)

    def _set_view_of_cat(self, node: Node) -> None:
        """Replace the writes of a `cat` by writes of its arguments."""
        # If a loop overwrites an error and reads it at other features, it has to read a copy of the error.
        error_views = [view for view in self.writes[node] if view.array.name == "error state"]
        if error_views or any(node in other.args for other in self.nodes):
            self.views[node] = self._choose_view(node)
        views, self.writes[node] = self.writes[node], error_views
        for view in (view for view in views if view not in error_views):
            start = view.start
            for arg in node.args:
                self.writes[arg].append(View(view.array, start, arg.width))
                start += arg.width

    def _choose_view(self, node: Node) -> View:
        """Return a view where a node can be read again: a view that is written anyway, or a new array."""
        for view in [self.views.get(node), *self.writes[node]]:
            if view is not None and view.array.extent in ("position", "row") and view.array.name != "error state":
                return view
        array = Array("work", sum(view.array.name == "work" for view in self.views.values()), node.width, "row")
        self.writes[node].append(View(array, 0, node.width))
        return self.writes[node][-1]

    def _is_read_later(self, node: Node, reader: Node) -> bool:
        if reader.op in PRODUCTS or reader.op in ("slice", "spread"):
            return True
        if reader.op in ("cat", "sum"):
            return False
        is_later = self.levels[node] < self.levels[reader] or node.op == "sum"
        return is_later and not self._is_available(node, self.levels[reader])

    def _is_available(self, node: Node, level: int) -> bool:
        """Return whether a loop of `level` can read a node without an array: a scalar or cheap value of the segment."""
        return (node.width == 1 or node in self.cheap) and self._segment(node) == self.segment_of[level]

    def _segment(self, node: Node) -> int:
        return self.segment_of[self._level_of(node) - (node.op == "sum")]

    def schedule(self) -> Schedule:
        plan = Schedule([Segment() for _ in range(self.segment_of[-1] + 1)], [], self.views)
        for node in self.nodes:
            if node.op in PRODUCTS:
                factor = plan.view(node.args[0])
                assert factor is not None, node
                product = Multiply(factor, node.index, node.op == "product_t", self.views[node])
                plan.segments[self.segment_of[self._level_of(node)]].products.append(product)
        for level, loops in enumerate(self._loops()):
            if loops:
                plan.segments[self.segment_of[level]].levels.append(dict(sorted(loops.items())))
        arrays = [*self.work.reads.values(), *(view.array for view in self.views.values())]
        arrays += [array for _, array in self.work.writes]
        plan.arrays = list(dict.fromkeys(arrays))
        return plan

    def _loops(self) -> list[dict[int, Loop]]:
        """Return the loops of each level. An error at a state is overwritten at or after its last reader."""
        levels = {(node, view): self._level_of(node) for node, views in self.writes.items() for view in views}
        replaced = {array: node for node, array in self.work.reads.items() if array.name == "error state"}
        while True:
            loops = self._build_loops(levels)
            raised = {}
            for (node, view), level in levels.items():
                if view.array in replaced:
                    old = replaced[view.array]
                    readers = [k for k, widths in enumerate(loops) if any(loop.reads(old) for loop in widths.values())]
                    raised[node, view] = max([level, *readers])
            if all(levels[key] == level for key, level in raised.items()):
                return loops
            levels.update(raised)
            for (node, _), level in raised.items():
                is_available = self._is_available(node, level) or (level == self._level_of(node) and node.op != "sum")
                if self._is_looped(node) and not is_available and node not in self.views:
                    self.views[node] = self._choose_view(node)
                    levels[node, self.views[node]] = self._level_of(node)

    def _build_loops(self, write_levels: dict[tuple[Node, View], int]) -> list[dict[int, Loop]]:
        loops: list[dict[int, Loop]] = [{} for _ in self.segment_of]
        for node in self.nodes:
            if node.op == "sum":
                _loop(loops[self._level_of(node) - 1], node.args[0].width).sums.append(node)
            elif self._is_looped(node) and node not in self.cheap:
                _loop(loops[self._level_of(node)], node.width).nodes.append(node)
        for (node, view), level in write_levels.items():
            if node.op == "sum" and node.width == 1 and self._segment(node) != self.segment_of[level]:
                _loop(loops[level - 1], node.args[0].width).sums_written.append((node, view))
            elif not is_stored(node) or view != self.views[node]:
                _loop(loops[level], node.width).writes.append((node, view))
        for level, by_width in enumerate(loops):  # every loop computes the cheap values that it reads
            cheap = {node for node in self.cheap if self._segment(node) == self.segment_of[level]}
            for loop in by_width.values():
                while missing := (loop.arguments() & cheap) - set(loop.nodes):
                    loop.nodes.extend(missing)
                loop.nodes.sort(key=lambda node: node.order)
        return loops


def _loop(loops: dict[int, Loop], width: int) -> Loop:
    return loops.setdefault(width, Loop(width))


@dataclass(frozen=True)
class Event:
    """A loop or a product of a schedule, with the views that it reads and writes."""

    reads: list[View]
    writes: list[View]
    is_loop: bool


@lru_cache(MAX_CACHED_PROGRAMS)
def overlays(program: Program) -> dict[Array, View]:
    """Return a view inside another array for each array that can share memory."""
    forward, backward = (list(_list_events(schedule(work))) for work in (program.forward, program.backward))
    read_after_loop = {product.factor.array for product in program.products}
    hoisted = [product.hoisted for product in program.products if product.hoisted]
    views: dict[Array, View] = {}
    for saved in (array for array in program.saved if array not in hoisted):  # hoisted arrays are full before the loop
        hosts = [host for host in hoisted if host not in program.saved]
        view = next(_free_slices(saved, hosts, views, forward), None)
        if view is not None:
            views[saved] = view
    for host in dict.fromkeys([*hoisted, *(array for array in program.saved if array not in views)]):
        all_of_host = View(host, 0, host.width)
        contents = {array: view for array, view in views.items() if view.array == host} | {host: all_of_host}
        for error in dict.fromkeys(product.error for product in program.products):
            fits = error.width == host.width and error not in views and not contents.keys() & read_after_loop
            if fits and _may_replace(contents, {error: all_of_host}, backward):
                views[error] = all_of_host
                break
    return views


def _free_slices(saved: Array, hosts: list[Array], taken: dict[Array, View], events: list[Event]) -> Iterator[View]:
    """Yield the slices of hosts whose last read precedes the write of `saved`."""
    slices = [view for event in events for view in event.reads if view.array in hosts and view.width == saved.width]
    for view in dict.fromkeys(slices):
        is_free = not any(view.array == other.array and _do_overlap(view, other) for other in taken.values())
        if is_free and _may_replace({view.array: View(view.array, 0, view.array.width)}, {saved: view}, events):
            yield view


def _may_replace(old: dict[Array, View], new: dict[Array, View], events: list[Event]) -> bool:
    """Return whether each write of `new` follows all overlapping reads of `old`, or its loop reads the same view."""
    reads = [(position, view) for position, event in enumerate(events) for view in _place_in_hosts(event.reads, old)]
    writes = [(position, view) for position, event in enumerate(events) for view in _place_in_hosts(event.writes, new)]
    return all(
        i < j or (i == j and events[i].is_loop and view == other) or not _do_overlap(view, other)
        for i, view in reads
        for j, other in writes
    )


def _place_in_hosts(views: list[View], placement: dict[Array, View]) -> Iterator[View]:
    for view in views:
        if view.array in placement:
            host = placement[view.array]
            yield View(host.array, host.start + view.start, view.width)


def _do_overlap(a: View, b: View) -> bool:
    return a.start < b.start + b.width and b.start < a.start + a.width


def _list_events(plan: Schedule) -> Iterator[Event]:
    for segment in plan.segments:
        for product in segment.products:
            yield Event([product.factor], [product.result], is_loop=False)
        for loop in (loop for loops in segment.levels for loop in loops.values()):
            # Sums of several features are set to zero before the loop reads anything.
            yield Event([], [plan.views[node] for node in loop.sums if is_stored(node)], is_loop=False)
            nodes = sorted(loop.arguments() - set(loop.nodes), key=lambda node: node.order)
            views = [view for view in map(plan.view, nodes) if view is not None]
            yield Event(views, [view for _, view in (*loop.writes, *loop.sums_written)], is_loop=True)
