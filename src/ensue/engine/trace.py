"""The trace of a layer's `step` as a graph, and snapshots that detect later changes of the layer.

`step` runs once on rows of zeros, and every torch operation is recorded. Operations on parameters alone (a transpose, a
slice or a mask of a weight) are run by torch once for each sequence. All other operations become nodes (`aten.py`).
Random numbers, integer states, and operations across rows, among others, raise `Untraceable`.

Tensors are read by name at each call. Everything else (modules, modes, numbers in attributes) is read only while
tracing, so a trace is used only as long as its `Snapshot` matches the layer.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ensue.engine.aten import HANDLERS, Nodes, Untraceable
from ensue.engine.graph import Graph, Node, reachable
from ensue.types import State, leaves, map_state

SHAPE_OPERATIONS = frozenset({"expand", "view", "_unsafe_view"})
"""Operations whose arguments are the sizes of the result, including the number of rows."""


@dataclass(frozen=True)
class TensorKey:
    """A placeholder for a recorded tensor in the arguments of a call."""

    key: int


@dataclass(frozen=True)
class Call:
    """A recorded operation. `items` are its flattened arguments, with keys in place of tensors."""

    function: Any
    items: list[Any]
    structure: TreeSpec
    results: Sequence[int]

    def run(self, values: dict[int, Any], rows: tuple[int, int] = (0, 0)) -> None:
        """Repeat the operation on `values` and add its results; `rows` are the traced and the current row count."""
        args, kwargs = tree_unflatten([_substitute(item, values, *rows) for item in self.items], self.structure)
        results = self.function(*args, **kwargs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        values.update(zip(self.results, results, strict=True))


@dataclass(frozen=True)
class Matrix:
    """The rows `start` to `stop` of a recorded (k, n) matrix."""

    key: int
    start: int
    stop: int

    def select(self, matrix: Tensor) -> Tensor:
        """Return these rows of `matrix`, without a slice for all rows, since the backward pass of a slice copies."""
        return matrix if self.stop - self.start == len(matrix) else matrix[self.start : self.stop]


@dataclass
class TracedStep:
    """A recorded step: the operations on parameters alone, and the graph of all other operations."""

    graph: Graph
    parameters: dict[str, int]
    """The keys of the layer's tensors that the step reads, by name."""
    constants: dict[int, Tensor]
    once: list[Call]
    """Operations on parameters alone, which run once for a sequence."""
    calls: list[Call]
    """All other operations, which run at each position."""
    rows: int
    """The number of rows of the recording."""
    keys: tuple[list[int], list[int]]
    """The keys of x and the states, and the keys of the output and the next states."""
    vectors: list[int]
    matrices: list[Matrix]
    output: Node
    states: list[Node]
    """The leaves of the state after the step."""
    shapes: list[torch.Size]
    """The shapes of the states in the recording, (rows, ...)."""
    zeros: State = None
    """The initial state of one row, if it is a NamedTuple of zeros (1, width) for all values of the parameters."""

    @property
    def state_widths(self) -> list[int]:
        return [shape[1:].numel() for shape in self.shapes]

    def values(self, parameters: Sequence[Tensor]) -> dict[int, Any]:
        """Return the tensors that are computed before the first position, by key."""
        values: dict[int, Any] = {**self.constants, **dict(zip(self.parameters.values(), parameters, strict=True))}
        for call in self.once:
            call.run(values)
        return values

    def weights(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return the vectors and matrices of the step, computed from the layer's parameters."""
        values = self.values(parameters)
        matrices = [matrix.select(values[matrix.key]) for matrix in self.matrices]
        return [*(values[key].reshape(1, -1).contiguous() for key in self.vectors), *matrices]

    def step(self, values: dict[int, Any], x_t: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """Return the output and the next states (rows, width), by the recorded operations under autograd."""
        before = [state.view(-1, *shape[1:]) for state, shape in zip(states, self.shapes, strict=True)]
        values = {**values, **dict(zip(self.keys[0], [x_t, *before], strict=True))}
        for call in self.calls:
            call.run(values, (self.rows, len(x_t)))
        return [values[key].flatten(1) for key in self.keys[1]]

    @cached_property
    def structure(self) -> tuple[object, ...]:
        """A hashable description of the graph: steps with equal structures have the same program."""
        results = [self.output, *self.states]
        nodes = [  # `repr`, since 0.0 equals -0.0
            (node.order, node.op, tuple(arg.order for arg in node.args), node.width, repr(node.number))
            for node in reachable(results)
        ]
        return *nodes, *(node.order for node in results), *self.state_widths


def trace(layer: Any) -> TracedStep:
    """Return the trace of `layer.step`, which is the same in all modes of torch. Random generators do not change."""
    devices = {tensor.device for _, tensor in list_tensors(layer) if tensor.device.type == "cuda"}
    with (
        torch.inference_mode(False),  # inference mode would skip the dispatch that is recorded
        torch.no_grad(),
        torch.autograd.graph.saved_tensors_hooks(*[Tensor.detach] * 2),  # not a checkpoint's hooks; results do not leak
        torch.random.fork_rng(list(devices)),
    ):
        return _trace(layer)


def _trace(layer: Any) -> TracedStep:
    named = dict(list_tensors(layer))
    sizes = {size for tensor in named.values() for size in tensor.shape} | {layer.d_in, layer.d_out}
    sizes |= {size for leaf in leaves(layer.init_state(1)) for size in leaf.shape}
    rows = next(rows for rows in range(211, 10_000) if rows not in sizes)  # differs from all other sizes
    reference = next((tensor for tensor in named.values() if tensor.is_floating_point()), torch.zeros(()))
    device = reference.device.type
    with torch.autocast(device, enabled=False), _Recorder() as start:
        state = layer.init_state(rows)
    before = list(leaves(state))
    if not before or any(not leaf.is_floating_point() or leaf.dim() < 2 for leaf in before):
        raise Untraceable("a state that is not floating-point numbers (rows, features)")
    before = [leaf.detach().clone() for leaf in before]  # distinct, even if two leaves are one tensor
    x_t = reference.new_zeros(rows, layer.d_in)
    copies = iter(before)
    recorder = _Recorder()
    with torch.autocast(device, enabled=False), recorder:
        y, after = layer.step(x_t, map_state(lambda leaf: next(copies), state))
    lowering = _Lowering(rows, named, x_t, before)
    lowering.graph.is_exact = True
    for function, args, kwargs, results in recorder.calls:
        lowering.add_call(function, args, kwargs, results)
    lowering.graph.is_exact = False
    if not any(tensor.is_inference() for tensor in named.values()):  # autograd cannot save inference tensors
        with torch.autocast(device, enabled=False), _Recorder():
            _expect_default_gradients(layer, x_t, state)
    zeros = [results[0] for function, *_, results in start.calls if function.overloadpacket.__name__ == "new_zeros"]
    are_zeros = all(any(x is leaf for x in zeros) and leaf.dim() == 2 for leaf in state)
    traced = lowering.finish(y, after, state)
    if are_zeros and len(zeros) == len(start.calls) and hasattr(state, "_fields"):
        traced.zeros = map_state(lambda leaf: leaf[:1].clone(), state)
    return traced


class _NoHooks(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.register_hook:
            raise Untraceable("a hook on a gradient")
        return func(*args, **(kwargs or {}))


def _expect_default_gradients(layer: Any, x_t: Tensor, state: State) -> None:
    """Raise Untraceable for hooks on gradients and custom derivatives, which the recording below autograd misses."""
    with torch.enable_grad(), _NoHooks():
        before = map_state(lambda leaf: leaf.clone().requires_grad_(), state)
        y, after = layer.step(x_t.clone().requires_grad_(), before)
    pending, visited = [tensor.grad_fn for tensor in leaves((y, after))], set[Any]()
    while pending:
        node = pending.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise Untraceable(f"{type(node).__name__.removesuffix('Backward')}, which has a custom derivative")
        if node is not None and node not in visited:
            visited.add(node)
            pending += [function for function, _ in node.next_functions]


class _Recording:
    """A base class with `__torch_dispatch__`. Torch would wrap the mode's own method, and import `torch.compile`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, dict[str, Any], list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        as_list = list(results) if isinstance(results, (tuple, list)) else [results]
        self.calls.append((func, args, kwargs or {}, as_list))
        return results


class _Recorder(_Recording, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that records the operations below autograd, where composed operations are expanded."""

    def __exit__(self, error_class: Any, error: Any, traceback: Any) -> None:
        super().__exit__(error_class, error, traceback)  # type: ignore[no-untyped-call]
        if isinstance(error, (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)):
            raise Untraceable(f"code that fails for rows of zeros ({error})") from error


class _Lowering(Nodes):
    """The translation of recorded calls, in order. A tensor is `fixed` (computed from parameters) or has a node."""

    def __init__(self, rows: int, named: dict[str, Tensor], x_t: Tensor, before: list[Tensor]) -> None:
        self.rows, self.graph = rows, Graph()
        self.calls: list[Call] = []
        self.inputs = [id(x_t), *map(id, before)]
        self.alive: list[Any] = [named, x_t, before]  # keeps tensors alive, so that their ids are not reused
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

    def add_call(self, function: Any, args: Any, kwargs: dict[str, Any], results: list[Any]) -> None:
        self.alive.append((args, kwargs, results))
        name = function.overloadpacket.__name__
        if name == "lift_fresh":  # a constant in the code of the step
            self.constants[id(results[0])] = results[0]
            self.fixed.add(id(results[0]))
            return
        items, structure = tree_flatten((args, kwargs))
        tensors = [item for item in items if isinstance(item, Tensor)]
        if any(id(tensor) not in self.fixed and id(tensor) not in self.nodes for tensor in tensors):
            raise Untraceable(
                "a tensor that is not a parameter, buffer or other attribute, and may differ in the next call"
            )
        if name.endswith("_") or any(result is tensor for result in results for tensor in tensors):
            raise Untraceable(f"{name}, which changes a tensor in place")
        if name == "_local_scalar_dense":
            raise Untraceable("a number read out of a tensor, on which the control flow may depend")
        if name not in SHAPE_OPERATIONS and self.rows in [item for item in items if isinstance(item, (int, float))]:
            raise Untraceable(f"{name} with the number of rows as an argument")
        items = [TensorKey(id(item)) if isinstance(item, Tensor) else item for item in items]
        call = Call(function, items, structure, [id(result) for result in results])
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
            raise Untraceable(f"{name}, which the engine does not support")
        if any(result.dtype not in (self.dtype, torch.bool) for result in results):
            raise Untraceable(f"{name} with numbers of another type than {self.dtype}")
        if any(result.dim() < 2 or len(result) != self.rows for result in results if result.numel()):
            raise Untraceable(f"{name}, whose result is not of (rows, features)")
        try:
            nodes = HANDLERS[name](self, args, kwargs)
        except (TypeError, ValueError) as reason:
            raise Untraceable(f"{name} with arguments that the engine does not support") from reason
        for result, node in zip(results, nodes if isinstance(nodes, list) else [nodes], strict=False):
            self.nodes[id(result)] = node

    def node(self, value: Any) -> Node:
        """Return the node of a number or of a recorded tensor."""
        if isinstance(value, (bool, int, float)):
            return self.graph.constant(float(value))
        key = id(value)
        if key in self.nodes:
            return self.nodes[key]
        if value.dtype != self.dtype or self.rows in value.shape:
            raise Untraceable(f"a parameter that is not {self.dtype}, or has an entry for each row, outside a product")
        return self.graph.node("vector", width=value.numel(), number=_index_of(self.vectors, key))

    def product(self, value: Any, matrix: Any) -> Node:
        """Return the node of (rows, k) times (k, n); for concatenated features, the sum of their products."""
        if id(matrix) not in self.fixed:
            raise Untraceable("a product of two tensors that both depend on the input or state")
        node = self.node(value)
        total, start = None, 0
        for factor in node.args if node.op == "cat" else [node]:
            index = _index_of(self.matrices, Matrix(id(matrix), start, start + factor.width))
            product = self.graph.product(factor, index, matrix.shape[1])
            total, start = product if total is None else total + product, start + factor.width
        assert total is not None
        return total

    def finish(self, y: Any, after: State, before: State) -> TracedStep:
        results = [y, *leaves(after)]
        if len(results) != 1 + len(self.shapes) or type(after) is not type(before):
            raise Untraceable("a next state of another structure or shape than the state")
        for k, result in enumerate(results):
            if not isinstance(result, Tensor) or result.dim() < 2 or len(result) != self.rows:
                raise Untraceable("a result that is not of (rows, features)")
            if k and result.shape != self.shapes[k - 1]:
                raise Untraceable("a next state of another size than the state")
        if y.dim() != 2:
            raise Untraceable("an output that is not of (rows, features)")
        output, *states = (self.node(result) for result in results)
        keys = {item.key for call in self.once for item in call.items if isinstance(item, TensorKey)}
        keys |= {*self.vectors, *(matrix.key for matrix in self.matrices)}
        parameters = {name: key for name, key in self.parameters.items() if key in keys}
        return TracedStep(
            self.graph, parameters, self.constants, self.once, self.calls, self.rows,
            (self.inputs, [id(result) for result in results]), self.vectors, self.matrices, output, states, self.shapes,
        )  # fmt: skip


def _index_of(items: list[Any], item: Any) -> int:
    """Return the index of `item`, which is appended if it is missing."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _substitute(value: Any, values: dict[int, Any], rows: int, rows_now: int) -> Any:
    """Return the tensor of a key, `rows_now` in place of the traced number of rows, or another value unchanged."""
    if isinstance(value, TensorKey):
        return values[value.key]
    return rows_now if rows and type(value) is int and value == rows else value


_TORCH_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


class Snapshot:
    """A record of a layer's modules and attributes, without the numbers in tensors, to detect changes.

    Lists, tuples and dicts in attributes are compared item by item, tensors by name, and all other objects by identity.
    A hook on a submodule counts as a change, since it expects a call for each position. References to modules are weak.
    """

    def __init__(self, layer: nn.Module) -> None:
        self._modules = [_ModuleState(module, () if module is layer else _HOOKS) for module in layer.modules()]
        names = defaultdict(list)
        for name, tensor in list_tensors(layer):
            names[id(tensor)].append(attrgetter(name))
        self._ties = [getters for getters in names.values() if len(getters) > 1]

    def matches(self, layer: nn.Module) -> bool:
        """Return whether the layer is unchanged."""
        for module in self._modules:
            if not module.is_unchanged():
                return False
        return all(get(layer) is first(layer) for first, *others in self._ties for get in others)


class ModuleCopy:
    """A copy of the tensors of a small module, and a snapshot of everything else, to detect changes."""

    def __init__(self, module: nn.Module) -> None:
        self._snapshot = Snapshot(module)
        self._tensors = [tensor.detach().clone() for _, tensor in list_tensors(module)]

    def equals(self, module: nn.Module) -> bool:
        """Return whether the module is unchanged, to the bit."""
        return (not has_hooks(module) and self._snapshot.matches(module)) and all(
            now.dtype == was.dtype and now.device == was.device and torch.equal(now, was)
            for (_, now), was in zip(list_tensors(module), self._tensors, strict=True)
        )


class _ModuleState:
    """The attributes of one module in a snapshot."""

    def __init__(self, module: nn.Module, hooks: tuple[str, ...]) -> None:
        attributes = vars(module)
        names = [name for name in attributes if name not in _TORCH_ATTRIBUTES]
        plain = [name for name in names if type(attributes[name]) in _PLAIN_TYPES]
        self.module, self.size = ref(module), len(attributes)
        self.plain, self.hooks = itemgetter(*plain), itemgetter(*hooks) if hooks else None
        self.values = self.plain(attributes)
        self.tokens = [(name, _make_token(attributes[name])) for name in names if name not in plain]
        self.children = [ref(child) for child in _list_children(module)]
        self.tensors = [
            (kind, _list_names(attributes[kind])) for kind in ("_parameters", "_buffers") if attributes[kind]
        ]

    def is_unchanged(self) -> bool:
        module = self.module()
        if module is None:
            return False
        attributes = module.__dict__
        try:
            has_hooks = self.hooks is not None and any(self.hooks(attributes))
            if has_hooks or len(attributes) != self.size or self.plain(attributes) != self.values:
                return False
        except (KeyError, RuntimeError, ValueError):  # an attribute is missing, or is now a tensor or array
            return False
        for name, token in self.tokens:
            if _make_token(attributes.get(name)) != token:
                return False
        for kind, names in self.tensors:
            if _list_names(attributes[kind]) != names:
                return False
        return not self.children or [child() for child in self.children] == _list_children(module)


class _Identity:
    """A weak reference that equals another weak reference to the same living object."""

    def __init__(self, value: Any) -> None:
        self.value = ref(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value() is other.value() is not None

    __hash__ = None  # type: ignore[assignment]


def _make_token(value: Any) -> Any:
    """Return an object that equals later tokens of an attribute as long as the attribute is unchanged."""
    if isinstance(value, (list, tuple)):
        return type(value), [_make_token(item) for item in value]
    if isinstance(value, dict):
        return type(value), {name: _make_token(item) for name, item in value.items()}
    if isinstance(value, Tensor):
        return Tensor
    try:
        return type(value), value if type(value) in _PLAIN_TYPES else _Identity(value)
    except TypeError:  # an object without weak references, such as a `torch.dtype`
        return type(value), value


def list_tensors(layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and tensors of parameters, buffers and other attributes; a tied tensor with each of its names."""
    yield from layer.named_parameters(remove_duplicate=False)
    yield from layer.named_buffers(remove_duplicate=False)
    for prefix, module in layer.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield f"{prefix}.{name}".removeprefix("."), value


def has_hooks(module: nn.Module) -> bool:
    """Return whether calls of a module run hooks."""
    return any(vars(module)[name] for name in _HOOKS)


def _list_children(module: nn.Module) -> list[nn.Module]:
    return [child for child in module._modules.values() if child is not None]


def _list_names(tensors: dict[str, Tensor | None]) -> list[str]:
    return [name for name, tensor in tensors.items() if tensor is not None]
