"""The order in which one position of a pass is worked out: products, and between them loops over features.

A loop works out all values of one level; a value that needs all features of another (a product, a sum, a slice, things
side by side) is on a later level, which begins with its products. Products are over all rows, so they part the levels
into segments; within a segment each row goes through its levels by itself, while it is in the cache.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ensue.nn.engine.graph import PRODUCTS, Node, reachable
from ensue.nn.engine.program import Array, Pass


@dataclass(frozen=True)
class View:
    """Some features of an array."""

    array: Array
    start: int
    width: int


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


@dataclass
class Segment:
    products: list[Multiply] = field(default_factory=list)
    levels: list[dict[int, Loop]] = field(default_factory=list)
    """Loops by width. Those of width 1 come first: they are numbers of a row."""


@dataclass
class Schedule:
    segments: list[Segment]
    arrays: list[Array]
    places: dict[Node, View]

    def view(self, node: Node) -> View | None:
        """Where to read a value that the loop has not at hand; None of constants, and of numbers known to the row."""
        if node in self.places or node.op != "slice":
            return self.places.get(node)
        whole = self.view(node.args[0])
        return None if whole is None else View(whole.array, whole.start + node.index, node.width)


def schedule(work: Pass) -> Schedule:
    return _Scheduler(work).schedule()


class _Scheduler:
    """Levels first, then what has to stand in an array, then loops."""

    def __init__(self, work: Pass) -> None:
        self.work = work
        self.places = {node: View(array, 0, array.width) for node, array in work.reads.items()}
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
        self._place()

    def _level(self, node: Node) -> int:
        return self.levels.get(node, 0)

    def _find_level(self, node: Node) -> int:
        """Where a node can be used first."""
        if node.op in PRODUCTS or node.op == "slice":
            (arg,) = node.args
            return self._level(arg) + self._is_looped(arg)
        return max(map(self._level, node.args)) + (node.op in ("cat", "sum"))

    def _is_looped(self, node: Node) -> bool:
        """Whether a loop works the node out, so that it stands nowhere unless it is written."""
        return node in self.levels and node.op not in PRODUCTS and node.op not in ("slice", "cat")

    def _place(self) -> None:
        for node in self.nodes:
            if node.op == "cat":
                self._place_cat(node)
        for node in self.nodes:
            if node.op in PRODUCTS:
                self.places[node] = self._place_of(node)
        for node in self.nodes:
            for arg in node.args:
                if self._is_looped(arg) and self._is_read_later(arg, node):
                    self.places[arg] = self._place_of(arg)

    def _place_cat(self, node: Node) -> None:
        """Things side by side are written part by part."""
        self.places[node] = self._place_of(node)
        for view in self.writes.pop(node):
            start = view.start
            for part in node.args:
                self.writes[part].append(View(view.array, start, part.width))
                start += part.width

    def _place_of(self, node: Node) -> View:
        """Where a node can be read again: where it is written anyway, or a new array."""
        for view in [self.places.get(node), *self.writes[node]]:
            if view is not None and view.array.extent in ("position", "row") and view.array.name != "error state":
                return view
        array = Array("work", sum(view.array.name == "work" for view in self.places.values()), node.width, "row")
        self.writes[node].append(View(array, 0, node.width))
        return self.writes[node][-1]

    def _is_read_later(self, node: Node, reader: Node) -> bool:
        if reader.op in PRODUCTS or reader.op == "slice":
            return True
        if reader.op in ("cat", "sum"):
            return False
        here, there = self.levels[node], self.levels[reader]
        return here < there and (node.width > 1 or self.segment_of[here] != self.segment_of[there])

    def _view(self, node: Node) -> View:
        if node in self.places:
            return self.places[node]
        assert node.op == "slice", node
        whole = self._view(node.args[0])
        return View(whole.array, whole.start + node.index, node.width)

    def schedule(self) -> Schedule:
        segments = [Segment() for _ in range(self.segment_of[-1] + 1)]
        loops: list[dict[int, Loop]] = [{} for _ in self.segment_of]
        for node in self.nodes:
            level = self._level(node)
            if node.op in PRODUCTS:
                product = Multiply(self._view(node.args[0]), node.index, node.op == "product_t", self.places[node])
                segments[self.segment_of[level]].products.append(product)
            elif node.op == "sum":
                _loop(loops[level - 1], node.args[0].width).sums.append(node)
            elif self._is_looped(node):
                _loop(loops[level], node.width).nodes.append(node)
            elif node.op == "slice":
                self.places[node] = self._view(node)
        for node, views in self.writes.items():
            for view in views:
                if node.op not in PRODUCTS or view != self.places[node]:
                    _loop(loops[self._write_level(node, view)], node.width).writes.append((node, view))
        for level, found in enumerate(loops):
            if found:
                segments[self.segment_of[level]].levels.append(dict(sorted(found.items())))
        arrays = [*self.work.reads.values(), *(view.array for view in self.places.values())]
        return Schedule(
            segments, list(dict.fromkeys([*arrays, *(array for _, array in self.work.writes)])), self.places
        )

    def _write_level(self, node: Node, view: View) -> int:
        """Where the node is known; but an error that replaces the one that was read waits for all readers of that."""
        if view.array.name != "error state":
            return self._level(node)
        old = [read for read, array in self.work.reads.items() if array == view.array]
        return max([self._level(node), *(self._level(reader) for reader in self.nodes if set(old) & set(reader.args))])


def _loop(loops: dict[int, Loop], width: int) -> Loop:
    return loops.setdefault(width, Loop(width))
