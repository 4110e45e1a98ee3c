"""Recurrent layers in ONNX: LSTM, GRU and Elman as the operators LSTM, GRU and RNN, others as a `Scan` of the step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ensue.extensions.exporting.onnx.graph import Trace, to_numpy, value_info
from ensue.nn import GRU, LSTM, Bidirectional, Elman, Recurrent
from ensue.nn.combinators import MERGES
from ensue.nn.layer import mask_padding
from ensue.types import Shared, State, hold, leaves, map_state

Step = Callable[[tuple[Tensor, ...], State], tuple[tuple[Tensor, ...], State]]
"""A function from (inputs at a position, state) to (outputs, next state)."""
OPERATORS: dict[type[nn.Module], str] = {LSTM: "LSTM", GRU: "GRU", Elman: "RNN"}


@contextmanager
def convert_loops(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Replace `forward` of the recurrent layers of a model by functions that add nodes to the graph."""
    with ExitStack() as patches:
        for layer in model.modules():
            if isinstance(layer, Recurrent):
                patches.enter_context(patch.object(layer, "forward", partial(_run_recurrent, trace, layer)))
            elif isinstance(layer, Bidirectional) and type(layer.leftward) in OPERATORS:
                patches.enter_context(patch.object(layer, "forward", partial(_run_bidirectional, trace, layer)))
        yield


def _run_recurrent(
    trace: Trace, layer: Recurrent, x: Tensor, state: State = None, *, mask: Tensor | None = None
) -> tuple[Tensor, State]:
    state = layer.init_state(x.shape[0]) if state is None else state
    if type(layer) in OPERATORS:
        return add_operator(trace, layer, mask_padding(x, mask), state, mask)

    def step(inputs_t: tuple[Tensor, ...], before: State) -> tuple[tuple[Tensor, ...], State]:
        y_t, after = layer.step(inputs_t[0], before)
        return (y_t,), after if mask is None else hold(inputs_t[1], after, before)

    (y,), state = scan(trace, step, (x,) if mask is None else (mask_padding(x, mask), mask), state)
    return y, state


def scan(
    trace: Trace, step: Step, inputs: Sequence[Tensor], state: State, *, reverse: bool = False
) -> tuple[list[Tensor], State]:
    """Add a `Scan` of `step` over dim 1 of the inputs, and return the outputs, with positions on dim 1, and the state.

    Shared memory in the state is read from outside the loop, since steps do not change it.
    """
    before = list(_unshared_leaves(state))
    with trace.body() as body:
        input_types = []

        def body_input(stem: str, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
            name = body.name(stem)
            trace.owners[name] = body
            input_types.append(value_info(name, dtype, None))
            return trace.placeholder(sizes, dtype, name)

        body_leaves = iter([body_input("state", leaf.shape, leaf.dtype) for leaf in before])
        body_state = map_state(lambda leaf: next(body_leaves), state, shared=lambda memory: memory)
        inputs_t = tuple(body_input("input", x.shape[:1] + x.shape[2:], x.dtype) for x in inputs)
        outputs, after = step(inputs_t, body_state)
        results = [*_unshared_leaves(after), *outputs]
        names = [trace.graph.add("Identity", trace.of(tensor)) for tensor in results]
        output_types = [value_info(name, tensor.dtype, None) for name, tensor in zip(names, results, strict=True)]
        graph = body.build("step", input_types, output_types)
    names = trace.add(
        "Scan", *map(trace.of, [*before, *inputs]), outputs=len(results), body=graph, num_scan_inputs=len(inputs),
        scan_input_axes=[1] * len(inputs), scan_output_axes=[1] * len(outputs),
        scan_input_directions=[int(reverse)] * len(inputs), scan_output_directions=[int(reverse)] * len(outputs),
    )  # fmt: skip
    names = [names] if len(results) == 1 else names
    length = inputs[0].shape[1]
    final = iter([trace.placeholder(x.shape, x.dtype, name) for x, name in zip(before, names, strict=False)])
    ys = [
        trace.placeholder((*y.shape[:1], length, *y.shape[1:]), y.dtype, name)
        for y, name in zip(outputs, names[len(before) :], strict=True)
    ]
    return ys, map_state(lambda leaf: next(final), state, shared=lambda memory: memory)


def _unshared_leaves(state: State) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif state is not None and not isinstance(state, Shared):
        for child in state:
            yield from _unshared_leaves(child)


def add_operator(
    trace: Trace, layer: Any, x: Tensor, state: State, mask: Tensor | None, *, reverse: bool = False
) -> tuple[Tensor, State]:
    """Add the operator of an LSTM, GRU or Elman layer over `x` (B, T, d).

    With `reverse`, it runs from the last position of each row to the first.
    """
    with _disable_current_modes():
        arrays = _order_weights(trace, layer)
    prefix = trace.weights[id(layer.weight_input)][0].removesuffix("weight_input")
    weights = [trace.root.weight(prefix + letter, array) for letter, array in zip("WRB", arrays, strict=True)]
    lengths = "" if mask is None else trace.of(mask.sum(1).to(torch.int32))
    initial = [trace.add("Unsqueeze", trace.of(leaf), trace.graph.constant([0])) for leaf in leaves(state)]
    by_position = trace.add("Transpose", trace.of(x), perm=[1, 0, 2])
    attributes: dict[str, Any] = {}
    if isinstance(layer, GRU):
        attributes = {"linear_before_reset": int(layer.reset == "after")}
    elif isinstance(layer, Elman):
        attributes = {"activations": ["Tanh" if layer.activation == "tanh" else "Relu"]}
    outputs = trace.add(
        OPERATORS[type(layer)], by_position, *weights, lengths, *initial, outputs=1 + len(initial),
        hidden_size=layer.d_out, direction="reverse" if reverse else "forward", **attributes,
    )  # fmt: skip
    y = trace.add("Squeeze", trace.add("Transpose", outputs[0], perm=[2, 0, 1, 3]), trace.graph.constant([2]))
    names = [trace.add("Squeeze", name, trace.graph.constant([0])) for name in outputs[1:]]
    final_leaves = iter([trace.placeholder(x.shape, x.dtype, n) for x, n in zip(leaves(state), names, strict=True)])
    final = map_state(lambda leaf: next(final_leaves), state)
    if mask is not None:  # the operator returns zeros for a row without positions
        final = hold(mask[:, 0], final, state)
    return trace.placeholder((*x.shape[:2], layer.d_out), x.dtype, y), final


def _run_bidirectional(
    trace: Trace, layer: Bidirectional, x: Tensor, state: State = None, *, mask: Tensor | None = None
) -> tuple[Tensor, State]:
    rightward, rightward_state = layer.rightward(x, mask=mask)
    initial = layer.leftward.init_state(x.shape[0])
    leftward, leftward_state = add_operator(trace, layer.leftward, mask_padding(x, mask), initial, mask, reverse=True)
    return MERGES[layer.merge](rightward, leftward), (rightward_state, leftward_state)


def _order_weights(trace: Trace, layer: Any) -> list[NDArray[Any]]:
    """Return W, R and B in the order of ONNX: input, output, forget, candidate; GRU: update, reset, candidate."""
    W, R, b = (trace.weights[id(weight)][1] for weight in (layer.weight_input, layer.weight_hidden, layer.bias))
    b_hidden = torch.zeros_like(b)
    if isinstance(layer, GRU):
        if layer.reset == "after":
            b_hidden = torch.cat((b_hidden[: 2 * layer.d_out], trace.weights[id(layer.bias_candidate)][1]))
        else:  # h' = (1 - z) h + z n, but the operator has z h + (1 - z) n: negate the gate, since 1 - σ(v) = σ(-v)
            sign = torch.ones_like(b)
            sign[layer.d_out : 2 * layer.d_out] = -1
            W, R, b = W * sign[:, None], R * sign[:, None], b * sign
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}[OPERATORS[type(layer)]]
    W, R, b, b_hidden = (
        torch.cat([tensor.chunk(len(order))[gate] for gate in order]).unsqueeze(0) for tensor in (W, R, b, b_hidden)
    )
    return list(map(to_numpy, (W, R, torch.cat((b, b_hidden), 1))))
