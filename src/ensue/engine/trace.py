"""From the `step` of a layer to the graph of one step.

`step` is run once on some rows of zeros, and every operation that torch carries out is recorded. Operations on
parameters alone (a transpose, a slice of a weight, a mask of it) are left to torch, once for a whole sequence. The rest
becomes nodes (`aten.py`). What the table there does not have (random numbers, integer states, operations across rows)
cannot be traced: `Untraceable` says what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ensue.engine.aten import HANDLERS, Nodes, Untraceable
from ensue.engine.graph import Graph, Node, reachable
from ensue.engine.snapshot import tensors_of
from ensue.types import State, leaves, map_state

Item = TypeVar("Item")
FREE_OF_ROWS = frozenset({"expand", "view", "_unsafe_view"})
"""Operations that name the number of rows only since they name every size."""


@dataclass(frozen=True)
class TensorKey:
    """Stands for a recorded tensor in the arguments of a call."""

    key: int


@dataclass(frozen=True)
class Call:
    """A recorded operation, its tensors replaced by keys."""

    function: Any
    args: Any
    kwargs: dict[str, Any]
    results: Sequence[int]

    def run(self, values: dict[int, Any], rows: tuple[int, int] = (0, 0)) -> None:
        """Once more, on `values`, where its results are put; `rows` were traced, and are there now."""
        args, kwargs = _mapped((self.args, self.kwargs), lambda part: _now(part, values, *rows))
        found = self.function(*args, **kwargs)
        for key, result in zip(self.results, found if isinstance(found, (tuple, list)) else (found,), strict=True):
            values[key] = result


@dataclass(frozen=True)
class Matrix:
    """A recorded (k, n) matrix, or some rows of it."""

    key: int
    start: int
    stop: int

    def of(self, whole: Tensor) -> Tensor:
        """A slice costs a copy in the backward pass, so the whole matrix is none."""
        return whole if self.stop - self.start == len(whole) else whole[self.start : self.stop]


@dataclass
class TracedStep:
    """One step: what is computed before it from parameters, and the graph of the rest."""

    graph: Graph
    parameters: dict[str, int]
    """The tensors of the layer that are read, by name."""
    constants: dict[int, Tensor]
    once: list[Call]
    """Operations on parameters alone."""
    calls: list[Call]
    """All other operations."""
    rows: int
    """Number of rows that they were recorded with."""
    keys: tuple[list[int], list[int]]
    """The keys of x and the states, and of the output and the next states."""
    vectors: list[int]
    matrices: list[Matrix]
    output: Node
    states: list[Node]
    """The leaves of the state after the step."""
    shapes: list[torch.Size]
    """The shapes of the states, without the rows."""

    @property
    def state_widths(self) -> list[int]:
        return [shape[1:].numel() for shape in self.shapes]

    def values(self, parameters: Sequence[Tensor]) -> dict[int, Any]:
        """All that is computed before the first position."""
        values: dict[int, Any] = {**self.constants, **dict(zip(self.parameters.values(), parameters, strict=True))}
        for call in self.once:
            call.run(values)
        return values

    def step(self, values: dict[int, Any], x_t: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The output and the states (rows, width) after a position, by the recorded operations, under autograd."""
        before = [state.view(-1, *shape[1:]) for state, shape in zip(states, self.shapes, strict=True)]
        values = {**values, **dict(zip(self.keys[0], [x_t, *before], strict=True))}
        for call in self.calls:
            call.run(values, (self.rows, len(x_t)))
        return [values[key].flatten(1) for key in self.keys[1]]

    @cached_property
    def structure(self) -> tuple[object, ...]:
        """All that its graph is: what follows from the graph alone is the same for steps of one structure."""
        results = [self.output, *self.states]
        nodes = [  # the numbers are written out, since 0.0 equals -0.0
            (node.order, node.op, tuple(arg.order for arg in node.args), node.width, repr(node.number))
            for node in reachable(results)
        ]
        return *nodes, *(node.order for node in results), *self.state_widths


def trace(layer: Any) -> TracedStep:
    """The trace of `layer.step`, the same in all modes of torch; no random number is taken. Raises `Untraceable`."""
    devices = {tensor.device for _, tensor in tensors_of(layer) if tensor.device.type == "cuda"}
    with (
        torch.inference_mode(False),  # where there is no autograd, nothing is below it
        torch.no_grad(),
        torch.random.fork_rng(list(devices)),
    ):
        return _traced(layer)


def _traced(layer: Any) -> TracedStep:
    named = dict(tensors_of(layer))
    rows = _number_of_rows(layer, named)
    reference = next((tensor for tensor in named.values() if tensor.is_floating_point()), torch.zeros(()))
    device = reference.device.type
    with torch.autocast(device, enabled=False):
        state = layer.init_state(rows)
    before = list(leaves(state))
    if not before or any(not leaf.is_floating_point() or leaf.dim() < 2 for leaf in before):
        raise Untraceable("a state that is not of (rows, features) real numbers")
    before = [leaf.detach().clone() for leaf in before]  # apart, also where two leaves were one tensor
    x_t = reference.new_zeros(rows, layer.d_in)
    given = iter(before)
    recorder = _Recorder()
    with torch.autocast(device, enabled=False), recorder:
        y, after = layer.step(x_t, map_state(lambda leaf: next(given), state))
    lowering = _Lowering(rows, named, x_t, before)
    lowering.graph.is_exact = True
    for function, args, kwargs, results in recorder.calls:
        lowering.read(function, args, kwargs, results)
    lowering.graph.is_exact = False
    if not any(tensor.is_inference() for tensor in named.values()):  # autograd saves none of these
        with torch.autocast(device, enabled=False), _Recorder():
            _expect_plain_derivatives(layer, x_t, state)
    return lowering.finished(y, after, state)


def _number_of_rows(layer: nn.Module, named: dict[str, Tensor]) -> int:
    """One that no size of the layer equals, so that a size written into an operation is known for what it is."""
    sizes = {size for tensor in named.values() for size in tensor.shape} | {layer.d_in, layer.d_out}
    sizes |= {size for leaf in leaves(layer.init_state(1)) for size in leaf.shape}  # type: ignore[operator]
    return next(rows for rows in range(211, 10_000) if rows not in sizes)


class _NoHooks(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.register_hook:
            raise Untraceable("a hook on a gradient")
        return func(*args, **(kwargs or {}))


def _expect_plain_derivatives(layer: Any, x_t: Tensor, state: State) -> None:
    """Raises `Untraceable` if a step changes gradients, which nothing below autograd shows."""
    with torch.enable_grad(), _NoHooks():
        before = map_state(lambda leaf: leaf.clone().requires_grad_(), state)
        y, after = layer.step(x_t.clone().requires_grad_(), before)
    waiting, seen = [tensor.grad_fn for tensor in leaves((y, after))], set[Any]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise Untraceable(f"{type(node).__name__.removesuffix('Backward')}, which has a derivative of its own")
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [before for before, _ in node.next_functions]


class _Recording:
    """The recording of an operation.

    It stands in a class of its own, since torch wraps the method of that name in the class of a mode itself, so that
    `torch.compile` keeps out of it; and the wrapper imports the whole compiler, seconds of it, at its first call.
    `unroll` asks `is_transformed` before it traces.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, list(found) if isinstance(found, (tuple, list)) else [found]))
        return found


class _Recorder(_Recording, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what torch is asked for, below autograd, where few operations are left."""


class _Lowering(Nodes):
    """Reads recorded calls in order; knows of every tensor whether it is of parameters alone, or a node."""

    def __init__(self, rows: int, named: dict[str, Tensor], x_t: Tensor, before: list[Tensor]) -> None:
        self.rows, self.graph = rows, Graph()
        self.calls: list[Call] = []
        self.given = [id(x_t), *map(id, before)]
        self.kept: list[Any] = [named, x_t, before]  # alive, so that no other tensor gets the id of one of them
        self.dtype = x_t.dtype
        self.parameters = {name: id(tensor) for name, tensor in named.items()}
        self.fixed = set(self.parameters.values())
        self.nodes: dict[int, Node] = {id(x_t): self.graph.node("input", width=x_t.shape[1])}
        for number, leaf in enumerate(before):
            self.nodes[id(leaf)] = self.graph.node("state", width=leaf[0].numel(), number=number)
        self.shapes = [leaf.shape for leaf in before]
        self.constants: dict[int, Tensor] = {}
        self.once: list[Call] = []
        self.vectors: list[int] = []
        self.matrices: list[Matrix] = []

    def read(self, function: Any, args: Any, kwargs: dict[str, Any], results: list[Any]) -> None:
        self.kept.append((args, kwargs, results))
        name = function.overloadpacket.__name__
        if name == "lift_fresh":  # a constant of the step
            self.constants[id(results[0])] = results[0]
            self.fixed.add(id(results[0]))
            return
        tensors = _all_of(Tensor, (args, kwargs))
        if any(id(tensor) not in self.fixed and id(tensor) not in self.nodes for tensor in tensors):
            raise Untraceable(
                "a tensor that is no parameter, buffer or other attribute, and may be another one next time"
            )
        if name.endswith("_") or any(result is tensor for result in results for tensor in tensors):
            raise Untraceable(f"{name}, which changes a tensor in place")
        if name == "_local_scalar_dense":
            raise Untraceable("a number read out of a tensor, on which its course may depend")
        if name not in FREE_OF_ROWS and self.rows in _numbers((args, kwargs)):
            raise Untraceable(f"{name} with the number of rows written into it")
        call = Call(function, _with_keys(args), _with_keys(kwargs), [id(result) for result in results])
        if any(id(tensor) in self.nodes for tensor in tensors):
            self._add_nodes(name, args, kwargs, results)
            self.calls.append(call)
        elif torch.Tag.nondeterministic_seeded in function.tags:
            raise Untraceable(f"{name}, which draws random numbers")
        else:
            self.once.append(call)
            self.fixed.update(call.results)

    def _add_nodes(self, name: str, args: Any, kwargs: dict[str, Any], results: list[Any]) -> None:
        if name not in HANDLERS:
            raise Untraceable(f"{name}, which the engine does not know")
        if any(result.dtype not in (self.dtype, torch.bool) for result in results):
            raise Untraceable(f"{name} with numbers of another type than {self.dtype}")
        if any(result.dim() < 2 or len(result) != self.rows for result in results if result.numel()):
            raise Untraceable(f"{name}, whose result is not of (rows, features)")
        try:
            found = HANDLERS[name](self, args, kwargs)
        except (TypeError, ValueError) as reason:
            raise Untraceable(f"{name} in a form that the engine does not know") from reason
        for result, node in zip(results, found if isinstance(found, list) else [found], strict=False):
            self.nodes[id(result)] = node

    def node(self, value: Any) -> Node:
        """An argument of an operation, as a node."""
        if isinstance(value, (bool, int, float)):
            return self.graph.constant(float(value))
        key = id(value)
        if key in self.nodes:
            return self.nodes[key]
        if value.dtype != self.dtype or self.rows in value.shape:
            raise Untraceable(f"a parameter of type {value.dtype}, or repeated for each row, outside a product")
        return self.graph.node("vector", width=value.numel(), number=_placed(self.vectors, key))

    def product(self, value: Any, matrix: Any) -> Node:
        """(rows, k) times (k, n); of features side by side, the sum of their products."""
        if id(matrix) not in self.fixed:
            raise Untraceable("a product of two things neither of which is a parameter")
        node = self.node(value)
        total, start = None, 0
        for part in node.args if node.op == "cat" else [node]:
            index = _placed(self.matrices, Matrix(id(matrix), start, start + part.width))
            product = self.graph.product(part, index, matrix.shape[1])
            total, start = product if total is None else total + product, start + part.width
        assert total is not None
        return total

    def finished(self, y: Any, after: State, before: State) -> TracedStep:
        results = [y, *leaves(after)]
        if len(results) != 1 + len(self.shapes) or type(after) is not type(before):
            raise Untraceable("a state of another shape than the one before")
        for k, result in enumerate(results):
            if not isinstance(result, Tensor) or result.dim() < 2 or len(result) != self.rows:
                raise Untraceable("a result that is not of (rows, features)")
            if k and result.shape != self.shapes[k - 1]:
                raise Untraceable("a state of another size than the one before")
        if y.dim() != 2:
            raise Untraceable("an output that is not of (rows, features)")
        output, *states = (self.node(result) for result in results)
        read = {part.key for call in self.once for part in _all_of(TensorKey, (call.args, call.kwargs))}
        read |= {*self.vectors, *(matrix.key for matrix in self.matrices)}
        parameters = {name: key for name, key in self.parameters.items() if key in read}
        return TracedStep(
            self.graph, parameters, self.constants, self.once, self.calls, self.rows,
            (self.given, [id(result) for result in results]), self.vectors, self.matrices, output, states, self.shapes,
        )  # fmt: skip


def _placed(known: list[Any], item: Any) -> int:
    if item not in known:
        known.append(item)
    return known.index(item)


def _all_of(kind: type[Item], value: Any) -> list[Item]:
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [item for part in value for item in _all_of(kind, part)] if isinstance(value, (tuple, list)) else []


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(part, change) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(part, change) for part in value)
    return change(value)


def _with_keys(value: Any) -> Any:
    return _mapped(value, lambda part: TensorKey(id(part)) if isinstance(part, Tensor) else part)


def _now(value: Any, values: dict[int, Any], rows: int, rows_now: int) -> Any:
    """An argument of a recorded call as it is now: a tensor by its key, the number of rows."""
    if isinstance(value, TensorKey):
        return values[value.key]
    return rows_now if rows and type(value) is int and value == rows else value
