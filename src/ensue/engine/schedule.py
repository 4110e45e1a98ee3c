"""The order in which a pass computes one position: products over all rows, and between them loops over features.

A loop computes all values of one level. A value that needs other features than its own (a product, a sum, a slice, a
`cat`, a spread) is on a later level. Products are over all rows, so they divide the levels into segments. Within a
segment, each row goes through all levels before the next row does, while it is in the cache.

A cheap value (a sum of two values that are in arrays) is computed again in every loop of its segment that reads it,
since that costs less than to write it and to read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ensue.engine.graph import PRODUCTS, Node, reachable
from ensue.engine.operations import COSTLY, OPERATIONS
from ensue.engine.program import Array, Pass, View


@dataclass(frozen=True)
class Multiply:
    """`result = factor @ matrix`, over all rows."""

    factor: View
    matrix: int
    transposed: bool
    result: View


@dataclass
class Loop:
    """Over `width` features of a row: values worked out, sums added up, values written."""

    width: int
    nodes: list[Node] = field(default_factory=list)
    sums: list[Node] = field(default_factory=list)
    writes: list[tuple[Node, View]] = field(default_factory=list)
    sums_written: list[tuple[Node, View]] = field(default_factory=list)
    """When the loop is through."""

    def arguments(self) -> set[Node]:
        """Nodes that are read or computed in the loop, without its sums."""
        found = {arg for node in [*self.nodes, *self.sums] for arg in node.args}
        return found | {node for node, _ in self.writes}

    def wants(self, node: Node) -> bool:
        """Whether a node, or a slice or spread of it, is read here."""
        return any(part == node for arg in self.arguments() for part in parts_of(arg))


@dataclass
class Segment:
    """Products over all rows, then loops, row by row."""

    products: list[Multiply] = field(default_factory=list)
    levels: list[dict[int, Loop]] = field(default_factory=list)
    """Loops by width. Those of width 1 come first: they are numbers of a row."""


@dataclass
class Schedule:
    """The segments of a pass, the arrays that they read and write, and where each value is read."""

    segments: list[Segment]
    arrays: list[Array]
    views: dict[Node, View]

    def view(self, node: Node) -> View | None:
        """Where to read a value that the loop has not at hand; None of constants, and of numbers known to the row."""
        if node in self.views or node.op not in ("slice", "spread"):
            return self.views.get(node)
        whole = self.view(node.args[0])
        if node.op == "spread":
            return whole
        return None if whole is None else View(whole.array, whole.start + node.index, node.width)


def parts_of(node: Node) -> Iterator[Node]:
    """A node, and what it is a slice or spread of."""
    yield node
    if node.op in ("slice", "spread"):
        yield from parts_of(node.args[0])


def is_stored(node: Node) -> bool:
    """Whether a node always stands in an array: a product, or a sum for each of several features."""
    return node.op in PRODUCTS or (node.op == "sum" and node.width > 1)


def schedule(work: Pass) -> Schedule:
    """The schedule of a pass."""
    return _Scheduler(work).schedule()


class _Scheduler:
    """Levels first, then what has to stand in an array, then loops."""

    def __init__(self, work: Pass) -> None:
        self.work = work
        self.views = {node: View(array, 0, array.width) for node, array in work.reads.items()}
        self.writes: dict[Node, list[View]] = defaultdict(list)
        for node, array in work.writes:
            self.writes[node].append(View(array, 0, array.width))
        found = reachable([node for node, _ in work.writes], leaves=work.reads)
        self.nodes = [node for node in found if node not in work.reads and node.op != "constant"]
        self.levels: dict[Node, int] = {}
        for node in self.nodes:
            self.levels[node] = self._find_level(node)
        begins = {self.levels[node] for node in self.nodes if node.op in PRODUCTS} - {0}
        depth = max([0, *self.levels.values()]) + 1
        self.segment_of = [sum(begin <= level for begin in begins) for level in range(depth)]
        self.free: set[Node] = set()
        for node in self.nodes:
            if self._is_free(node):
                self.free.add(node)
        self._set_views()

    def _is_free(self, node: Node) -> bool:
        """Whether a vector is cheap, and so is all that it is made of."""
        if node.op not in OPERATIONS or node.op in COSTLY or node.width == 1:
            return False
        return all(arg.width == 1 or arg in self.free or self._stands(arg) for arg in node.args)

    def _stands(self, node: Node) -> bool:
        """Whether a node stands in an array by itself, and keeps doing so."""
        if node.op in ("slice", "spread"):
            (whole,) = node.args
            is_overwritten = whole in self.views and self.views[whole].array.name == "error state"
            is_written = node.op == "spread" and self._is_looped(whole)
            return not is_overwritten and (is_written or self._stands(whole))
        return node in self.views or is_stored(node) or node.op == "constant"

    def _level(self, node: Node) -> int:
        return self.levels.get(node, 0)

    def _find_level(self, node: Node) -> int:
        """Where a node can be used first."""
        if node.op in PRODUCTS or node.op in ("slice", "spread"):
            (arg,) = node.args
            return self._level(arg) + self._is_looped(arg)
        return max(map(self._level, node.args)) + (node.op in ("cat", "sum"))

    def _is_looped(self, node: Node) -> bool:
        """Whether a loop works the node out, so that it stands nowhere unless it is written."""
        return node in self.levels and not is_stored(node) and node.op not in ("slice", "spread", "cat")

    def _set_views(self) -> None:
        for node in self.nodes:
            if node.op == "cat":
                self._set_view_of_cat(node)
        for node in self.nodes:
            if is_stored(node):
                self.views[node] = self._view_of(node)
        for node in self.nodes:
            for arg in node.args:
                if self._is_looped(arg) and self._is_read_later(arg, node):
                    self.views[arg] = self._view_of(arg)

    def _set_view_of_cat(self, node: Node) -> None:
        """Things side by side are written part by part."""
        # What a loop writes where it reads other features has to be written elsewhere first.
        late = [view for view in self.writes[node] if view.array.name == "error state"]
        if late or any(node in other.args for other in self.nodes):
            self.views[node] = self._view_of(node)
        views, self.writes[node] = self.writes[node], late
        for view in (view for view in views if view not in late):
            start = view.start
            for part in node.args:
                self.writes[part].append(View(view.array, start, part.width))
                start += part.width

    def _view_of(self, node: Node) -> View:
        """Where a node can be read again: where it is written anyway, or a new array."""
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
        return is_later and not self._is_at_hand(node, self.levels[reader])

    def _is_at_hand(self, node: Node, level: int) -> bool:
        """Whether a loop has a node without reading it: numbers of the row are kept, what is free is worked out."""
        return (node.width == 1 or node in self.free) and self._segment(node) == self.segment_of[level]

    def _segment(self, node: Node) -> int:
        """Where a node is worked out."""
        return self.segment_of[self._level(node) - (node.op == "sum")]

    def schedule(self) -> Schedule:
        plan = Schedule([Segment() for _ in range(self.segment_of[-1] + 1)], [], self.views)
        for node in self.nodes:
            if node.op in PRODUCTS:
                factor = plan.view(node.args[0])
                assert factor is not None, node
                product = Multiply(factor, node.index, node.op == "product_t", self.views[node])
                plan.segments[self.segment_of[self._level(node)]].products.append(product)
        for level, found in enumerate(self._loops()):
            if found:
                plan.segments[self.segment_of[level]].levels.append(dict(sorted(found.items())))
        arrays = [*self.work.reads.values(), *(view.array for view in self.views.values())]
        arrays += [array for _, array in self.work.writes]
        plan.arrays = list(dict.fromkeys(arrays))
        return plan

    def _loops(self) -> list[dict[int, Loop]]:
        """The loops of each level.

        An error that replaces one that is read must not be written before all have read that. When it is written is
        put off until this is so.
        """
        writes = [(node, view) for node, views in self.writes.items() for view in views]
        when = {(node, view): self._level(node) for node, view in writes}
        old = {array: read for read, array in self.work.reads.items() if array.name == "error state"}
        while True:
            loops = self._loops_with(when)
            late = {}
            for (node, view), level in when.items():
                if view.array in old:
                    read = old[view.array]
                    readers = [k for k, found in enumerate(loops) if any(loop.wants(read) for loop in found.values())]
                    late[node, view] = max([level, *readers])
            if all(when[key] == level for key, level in late.items()):
                return loops
            when.update(late)
            for (node, _), level in late.items():
                is_at_hand = self._is_at_hand(node, level) or (level == self._level(node) and node.op != "sum")
                if self._is_looped(node) and not is_at_hand and node not in self.views:
                    self.views[node] = self._view_of(node)
                    when[node, self.views[node]] = self._level(node)

    def _loops_with(self, when: dict[tuple[Node, View], int]) -> list[dict[int, Loop]]:
        loops: list[dict[int, Loop]] = [{} for _ in self.segment_of]
        for node in self.nodes:
            if node.op == "sum":
                _loop(loops[self._level(node) - 1], node.args[0].width).sums.append(node)
            elif self._is_looped(node) and node not in self.free:
                _loop(loops[self._level(node)], node.width).nodes.append(node)
        for (node, view), level in when.items():
            if node.op == "sum" and node.width == 1 and self._segment(node) != self.segment_of[level]:
                _loop(loops[level - 1], node.args[0].width).sums_written.append((node, view))
            elif not is_stored(node) or view != self.views[node]:
                _loop(loops[level], node.width).writes.append((node, view))
        self._add_free(loops)
        return loops

    def _add_free(self, loops: list[dict[int, Loop]]) -> None:
        """To every loop what it wants and has to work out by itself."""
        for level, found in enumerate(loops):
            free = {node for node in self.free if self._segment(node) == self.segment_of[level]}
            for loop in found.values():
                while missing := (loop.arguments() & free) - set(loop.nodes):
                    loop.nodes.extend(missing)
                loop.nodes.sort(key=lambda node: node.order)


def _loop(loops: dict[int, Loop], width: int) -> Loop:
    return loops.setdefault(width, Loop(width))
