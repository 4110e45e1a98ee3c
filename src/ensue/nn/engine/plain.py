"""A pass in torch's own operations, position by position: what runs where nothing can be compiled, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ensue.nn.engine.graph import Node
from ensue.nn.engine.operations import OPERATIONS
from ensue.nn.engine.program import Array, Pass
from ensue.nn.engine.rows import Rows
from ensue.nn.engine.storage import Arrays, Storage


def run(
    work: Pass, arrays: Arrays, rows: Rows, matrices: Sequence[Tensor], *, backward: bool, finals: dict[Array, Tensor]
) -> None:
    """Fill the arrays that `work` writes; at the end of each row its states are copied to `finals` (B, width)."""
    counts = [*rows.counts.tolist(), 0]
    positions = range(len(rows.counts))
    for t in reversed(positions) if backward else positions:
        here = {array: _rows_of(array, storage, rows, t) for array, storage in arrays.items()}
        values: dict[Node, Tensor | float] = {node: here[array] for node, array in work.reads.items()}
        found = [(_value(node, values, matrices), array) for node, array in work.writes]
        for value, array in found:
            if array.extent == "sum":
                here[array] += value.sum(0) if isinstance(value, Tensor) else counts[t] * value
            else:
                here[array].copy_(torch.as_tensor(value))
        for array, final in finals.items():
            final[counts[t + 1] : counts[t]] = here[array][counts[t + 1] :]


def _rows_of(array: Array, storage: Storage, rows: Rows, t: int) -> Tensor:
    if array.extent in ("vector", "sum"):
        return storage.tensor[0]
    count = int(rows.counts[t])
    if array.extent == "row":
        return storage.tensor[:count]
    if array.extent == "previous":
        if t == 0:
            assert storage.start is not None
            return storage.start[:count]
        t -= 1
    begin = t % 2 * rows.batch if storage.is_ring else int(rows.begins[t])
    return storage.tensor[begin : begin + count]


def _value(node: Node, values: dict[Node, Tensor | float], matrices: Sequence[Tensor]) -> Tensor | float:
    if node not in values:
        given = [_value(arg, values, matrices) for arg in node.args]
        values[node] = _worked_out(node, given, matrices)
    return values[node]


def _worked_out(node: Node, given: list[Tensor | float], matrices: Sequence[Tensor]) -> Tensor | float:
    if node.op == "constant":
        return node.number
    if node.op in OPERATIONS:
        return OPERATIONS[node.op].plain(*_tensors(given))  # type: ignore[no-any-return]
    if node.op == "cat":
        rows = max(len(part) for part in given if isinstance(part, Tensor))
        tensors = zip(_tensors(given), node.args, strict=True)
        return torch.cat([tensor.expand(rows, part.width) for tensor, part in tensors], dim=1)
    (value,) = _tensors(given)
    if node.op == "slice":
        return value[..., node.index : node.index + node.width]
    if node.op == "sum":
        return value.sum(-1, keepdim=True)
    matrix = matrices[node.index]
    return value @ (matrix.t() if node.op == "product_t" else matrix)


def _tensors(values: list[Tensor | float]) -> list[Tensor]:
    """All as tensors of one type; a number is one for all rows and features."""
    known = [value for value in values if isinstance(value, Tensor)]
    like = next((value for value in known if value.is_floating_point()), torch.zeros((), dtype=torch.float64))
    return [value if isinstance(value, Tensor) else like.new_tensor(value) for value in values]
