"""An ONNX graph in the making: nodes, constants and weights, and the sizes that are known only at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET, IR_VERSION = 20, 9
"""Old enough for the programs in use: onnxruntime 1.17 of 2024 reads them."""

TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.bool: TensorProto.BOOL,
}


class Unexportable(Exception):
    """Something has no form in ONNX; the message says what."""


class Graph:
    """A graph, or the body of a loop in an `outer` one, whose values it sees. Values are known by their names."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.root: Graph = self if outer is None else outer.root
        self.nodes: list[onnx.NodeProto] = []
        if outer is None:
            self.weights: dict[str, onnx.TensorProto] = {}
            self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
            self._count = 0

    def name(self, stem: str = "v") -> str:
        """A new name."""
        self.root._count += 1
        return f"{stem}_{self.root._count}"

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; returns the name of its output, or a list of names if there are several. "" is no input."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant array; the same one for equal values."""
        array = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        known = self.root._constants
        if key not in known:
            known[key] = self.weight(self.name("c"), array)
        return known[key]

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """A weight under its name in the model."""
        self.root.weights[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def finished(
        self, name: str, inputs: Iterable[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> onnx.GraphProto:
        """The graph as it is written, without what no output needs."""
        needed, nodes = {output.name for output in outputs}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed.update(_read_by(node))
        weights = [weight for name, weight in self.weights.items() if name in needed] if self.root is self else []
        return helper.make_graph(nodes[::-1], name, list(inputs), outputs, initializer=weights)


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """The inputs of a node, and if it is a loop those of its body."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)


def rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Gives values other names, where they are made and where they are read, in the bodies of loops too."""
    for node in nodes:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for attribute in node.attribute:
            rename(attribute.g.node, names)


def described(name: str, dtype: torch.dtype, sizes: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    """An input or output; a word stands for a size that is known at run time."""
    return helper.make_tensor_value_info(name, TYPES[dtype], sizes)


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    """The graph as a file's content, checked."""
    model = helper.make_model(
        graph, producer_name="ensue", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model)
    return model


def array_of(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a weight."""
    found: NDArray[Any] = tensor.detach().cpu().numpy()
    return found
