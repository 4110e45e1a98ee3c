"""ONNX graphs under construction: nodes, weights, dynamic sizes, and the values of traced tensors.

A model is traced once on meta tensors, with a large prime for each dynamic size. So sizes in traced operations can be
decoded: prime + 2 is the dynamic size plus 2, and the product of two primes is the product of the sizes. All other
numbers are constants.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

OPSET, IR_VERSION = 20, 9
"""The versions of the operator set and the file format. onnxruntime supports them since 1.17 (2024)."""

TYPES = {
    torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE, torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32, torch.bool: TensorProto.BOOL,
}  # fmt: skip


class Unexportable(Exception):
    """The error for an operation that cannot be expressed in ONNX."""


class Graph:
    """A graph, or the body of a loop, which can read the values of the `outer` graph. Values are names."""

    def __init__(self, outer: "Graph | None" = None) -> None:
        self.root: Graph = self if outer is None else outer.root
        self.nodes: list[onnx.NodeProto] = []
        if outer is None:
            self.weights: dict[str, onnx.TensorProto] = {}
            self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
            self._count = 0

    def name(self, stem: str = "v") -> str:
        """Return a new name."""
        self.root._count += 1
        return f"{stem}_{self.root._count}"

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node, and return the name of its output, or a list of names. The input "" is a missing input."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Return the name of a constant array. Equal constants share a name."""
        array = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        constants = self.root._constants
        if key not in constants:
            constants[key] = self.weight(self.name("c"), array)
        return constants[key]

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add a weight, and return its name."""
        self.root.weights[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def build(
        self, name: str, inputs: Iterable[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]
    ) -> onnx.GraphProto:
        """Return the graph. Nodes on which no output depends are left out."""
        needed, nodes = {output.name for output in outputs}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed.update(_list_inputs(node))
        weights = [weight for name, weight in self.weights.items() if name in needed] if self.root is self else []
        return helper.make_graph(nodes[::-1], name, list(inputs), outputs, initializer=weights)


def _list_inputs(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _list_inputs(inner)


def rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Rename values in all nodes, including bodies of loops."""
    for node in nodes:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for attribute in node.attribute:
            rename(attribute.g.node, names)


def value_info(name: str, dtype: torch.dtype, sizes: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    """Return the type of an input or output. A dynamic size is given by its name, or by None."""
    return helper.make_tensor_value_info(name, TYPES[dtype], sizes)


def build_model(graph: onnx.GraphProto) -> onnx.ModelProto:
    """Return a valid model with a graph."""
    model = helper.make_model(
        graph, producer_name="ensue", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model)
    return model


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().numpy()


MIN_PRIME, MAX_PRIME, PRIME_RATIO = 5_000, 100_000, 1.37
"""The bounds of the first prime, and the ratio of consecutive primes. Products of three primes fit into 64 bits."""
ROWS, TEXTS, BEAMS = "batch", "texts", "beams"
"""The names of related sizes: batch = texts · beams."""
MAX_OFFSET = 512
"""The largest number that may be added to a dynamic size, unless the number is a fixed size of the model."""


class SizeFormula(NamedTuple):
    """The formula `factor · op(sizes) + offset` of a number, where `op` is the operator Add or Mul."""

    op: str
    sizes: tuple[int, ...]
    factor: int = 1
    offset: int = 0


class Sizes:
    """The primes of named sizes, and their values in the graph."""

    def __init__(self, names: Iterable[str], fixed: Collection[int]) -> None:
        """Choose a prime for each name, larger than the fixed sizes of the model."""
        self.primes: dict[str, int] = {}
        self._fixed = frozenset(fixed)
        number = min(max(MIN_PRIME, 2 * max(fixed, default=0)), MAX_PRIME)
        for name in names:
            self.primes[name] = number = _next_prime(number)
            number = int(number * PRIME_RATIO)
        if BEAMS in self.primes:
            self.primes[ROWS] = self.primes[TEXTS] * self.primes[BEAMS]
        self._values: dict[int, str] = {}
        self._terms = _list_terms(self.primes)
        self._formula_of = cache(self._find_formula)

    def bind(self, size: int, value: str) -> None:
        """Set the graph value, (1,) int64, of a size of an input."""
        self._values.setdefault(size, value)

    def is_fixed(self, number: int) -> bool:
        """Return whether a number does not depend on dynamic sizes."""
        return self._formula_of(number) is None

    def value(self, graph: Graph, number: int) -> str:
        """Return the graph value, (1,) int64, of a number in a traced operation."""
        formula = self._formula_of(number)
        if formula is None:
            return graph.constant([number])
        if number not in self._values:
            value, *others = (self._values[size] for size in formula.sizes)
            for other in others:
                value = graph.root.add(formula.op, value, other)
            if formula.factor != 1:
                value = graph.root.add("Mul", value, graph.constant([formula.factor]))
            if formula.offset:
                value = graph.root.add("Add", value, graph.constant([formula.offset]))
            self._values[number] = value
        return self._values[number]

    def _find_formula(self, number: int) -> SizeFormula | None:
        size, sign = abs(number), 1 if number > 0 else -1
        if size < MIN_PRIME - MAX_OFFSET or size > 1 << 62:
            return None
        for term in sorted(self._terms, key=lambda term: abs(size - term)):
            if abs(size - term) <= MAX_OFFSET or size - term in self._fixed:
                return self._terms[term]._replace(factor=sign, offset=sign * (size - term))
        for term in sorted(self._terms, reverse=True):
            if size % term == 0 and size // term < MIN_PRIME:
                return self._terms[term]._replace(factor=sign * (size // term))
        return None


def _list_terms(primes: dict[str, int]) -> dict[int, SizeFormula]:
    """Return the formulas of primes, sums of two primes, and products of two primes."""
    sizes = list(primes.values())
    terms = {size: SizeFormula("Add", (size,)) for size in sizes}
    for pair in combinations_with_replacement(sizes, 2):
        terms.setdefault(sum(pair), SizeFormula("Add", pair))
        terms.setdefault(pair[0] * pair[1], SizeFormula("Mul", pair))
    return terms


def _next_prime(number: int) -> int:
    number += 1
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number


NUMPY_TYPES = {torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32, torch.bool: np.bool_}
MAX_NODES = 20_000
"""The maximum number of nodes of a graph. A Transformer of 24 layers has 1,000."""


class Trace:
    """A graph under construction, and the names of the values of tensors."""

    def __init__(self, sizes: Sizes, weights: Mapping[int, tuple[str, Tensor]]) -> None:
        """`weights` has the name and values of each parameter and buffer, by the id of its meta tensor."""
        self.graph = self.root = Graph()
        self.dynamic_sizes, self.weights = sizes, weights
        self.names: dict[int, str] = {}
        """The names of tensors by their ids."""
        self.owners: dict[str, Graph] = {}
        """The graphs of values. All other values belong to the root."""
        self.levels: list[Graph] = [self.root]
        self._named_tensors: list[Any] = []  # keeps the tensors alive, so that their ids are not used again
        self._transposed: dict[str, str] = {}

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node in the outermost graph that has its inputs."""
        owners = {id(self.owners.get(name, self.root)) for name in inputs}
        graph = next(level for level in reversed(self.levels) if id(level) in owners or level is self.root)
        if len(graph.nodes) == MAX_NODES:
            raise Unexportable(
                f"more than {MAX_NODES:,} operations; a Python loop over positions adds nodes for each position"
            )
        result = graph.add(op, *inputs, outputs=outputs, **attributes)
        for name in [result] if outputs == 1 else result:
            self.owners[name] = graph
        return result

    def of(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """Return the name of a tensor or number, cast to `dtype`."""
        if not isinstance(value, Tensor):
            dtype = dtype or (torch.float32 if isinstance(value, float) else torch.int64)
            if isinstance(value, int) and not isinstance(value, bool) and not self.dynamic_sizes.is_fixed(value):
                size = self.add("Squeeze", self.dynamic_sizes.value(self.root, value), self.graph.constant([0]))
                return size if dtype == torch.int64 else self.cast(size, dtype)
            return self.graph.constant(value, NUMPY_TYPES[dtype])
        if id(value) not in self.names:
            if id(value) not in self.weights and value.is_meta:
                raise Unexportable("a tensor that is neither an input nor a weight")
            name, tensor = self.weights.get(id(value), (self.root.name("constant"), value))
            self.bind(value, self.root.weight(name, to_numpy(tensor)))
        name = self.names[id(value)]
        return name if dtype in (None, value.dtype) else self.cast(name, dtype)

    def cast(self, value: str, dtype: torch.dtype) -> str:
        """Add a cast, and return its name."""
        return str(self.add("Cast", value, to=TYPES[dtype]))

    def sizes(self, numbers: Sequence[int]) -> str:
        """Return a vector of sizes, which may be dynamic."""
        if all(map(self.dynamic_sizes.is_fixed, numbers)):
            return self.graph.constant(list(numbers))
        values = [self.dynamic_sizes.value(self.root, number) for number in numbers]
        return values[0] if len(values) == 1 else str(self.add("Concat", *values, axis=0))

    def bind(self, tensor: Tensor, name: str) -> None:
        """Set the name of a tensor."""
        self.names[id(tensor)] = name
        self._named_tensors.append(tensor)

    def placeholder(self, sizes: Sequence[int], dtype: torch.dtype, name: str) -> Tensor:
        """Return a meta tensor for a value of the graph."""
        with _disable_current_modes():
            tensor = torch.empty(*sizes, dtype=dtype, device="meta")
        self.bind(tensor, name)
        return tensor

    def transposed(self, weight: Tensor) -> str:
        """Return the name of a transposed weight. The node is added once for each weight."""
        name = self.of(weight)
        if name not in self._transposed:
            self._transposed[name] = self.add("Transpose", name, perm=[1, 0])
        return self._transposed[name]

    @contextmanager
    def body(self) -> Iterator[Graph]:
        """Begin the graph of a loop's body, to which the nodes inside the block are added."""
        outer, self.graph = self.graph, Graph(self.graph)
        self.levels.append(self.graph)
        try:
            yield self.graph
        finally:
            self.levels.pop()
            self.graph = outer
