"""A pass in torch's own operations, position by position: what runs where nothing can be compiled, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ensue.engine.graph import Node
from ensue.engine.operations import OPERATIONS
from ensue.engine.packing import Packing
from ensue.engine.products import PackedWeights
from ensue.engine.program import Array, Program
from ensue.engine.storage import Arrays, Between, Finals, Storage


class PlainPasses:
    """The passes of a program."""

    chunk = (0, 0)
    """All states are kept."""

    def __init__(self, program: Program) -> None:
        self._passes = program.passes

    def run(
        self,
        name: str,
        arrays: Arrays,
        packing: Packing,
        matrices: Sequence[Tensor],
        *,
        finals: Finals,
        between: Between | None = None,
        kept: PackedWeights | None = None,
    ) -> None:
        """Fill the arrays that the pass writes; at the end of each row its states are copied to `finals` (B, width).

        `kept` is for weights that are held; here nothing is made of them.
        """
        work = self._passes[name]
        counts = [*packing.counts.tolist(), 0]
        positions = range(len(packing.counts))
        for t in reversed(positions) if name == "backward" else positions:
            if between is not None and name == "backward":
                between(t)
            here = {array: _rows_of(array, storage, packing, t) for array, storage in arrays.items()}
            position = _ValuesAt(counts[t], {node: here[array] for node, array in work.reads.items()}, matrices)
            found = [(position.result(node), array) for node, array in work.writes]
            for value, array in found:
                if array.extent == "sum":
                    here[array] += value.sum(0)
                else:
                    here[array].copy_(value)
            for array, final in finals:
                final[counts[t + 1] : counts[t]] = here[array][counts[t + 1] :]
            if between is not None and name != "backward":
                between(t)

    @staticmethod
    def multiply(
        a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False, kept: PackedWeights | None = None
    ) -> None:
        """`out` is `a @ b`, or that is added to it. `kept` as in `run`."""
        if accumulate:
            out.addmm_(a, b)
        else:
            torch.mm(a, b, out=out)


def _rows_of(array: Array, storage: Storage, packing: Packing, t: int) -> Tensor:
    if array.extent in ("vector", "sum"):
        return storage.tensor[:1]
    count = int(packing.counts[t])
    if array.extent == "row":
        return storage.tensor[:count]
    if array.extent == "previous":
        if t == 0:
            assert storage.start is not None
            return storage.start[:count]
        t -= 1
    begin = t % 2 * packing.batch if storage.is_ring else int(packing.begins[t])
    return storage.tensor[begin : begin + count]


class _ValuesAt:
    """The values of one position."""

    def __init__(self, rows: int, reads: dict[Node, Tensor], matrices: Sequence[Tensor]) -> None:
        self.rows, self.reads, self.matrices = rows, reads, matrices
        self.like = next(iter(reads.values()))
        self.values = dict(reads)

    def result(self, node: Node) -> Tensor:
        """(rows, width), in memory of its own: what it may be a view of, may be written over."""
        value = self._wide(node)
        return value.clone() if node in self.reads or node.op == "slice" else value

    def _wide(self, node: Node) -> Tensor:
        return self._value(node).expand(self.rows, node.width)

    def _value(self, node: Node) -> Tensor:
        if node not in self.values:
            self.values[node] = self._worked_out(node)
        return self.values[node]

    def _worked_out(self, node: Node) -> Tensor:
        if node.op == "constant":
            return self.like.new_full((1, 1), node.number)
        if node.op in OPERATIONS:
            found: Tensor = OPERATIONS[node.op].plain(*map(self._value, node.args))
            return found
        if node.op == "cat":
            return torch.cat([self._wide(part) for part in node.args], dim=1)
        value = self._wide(node.args[0])
        if node.op == "slice":
            return value[:, node.index : node.index + node.width]
        if node.op in ("sum", "spread"):
            return _summed(value, node) if node.op == "sum" else _spread(value, node)
        matrix = self.matrices[node.index]
        return value @ (matrix.t() if node.op == "product_t" else matrix)


def _summed(value: Tensor, node: Node) -> Tensor:
    return value.reshape(len(value), -1, value.shape[1] // node.width, node.index).sum(2).flatten(1)


def _spread(value: Tensor, node: Node) -> Tensor:
    few = value.reshape(len(value), -1, 1, node.index)
    return few.expand(-1, -1, node.width // value.shape[1], -1).flatten(1)
