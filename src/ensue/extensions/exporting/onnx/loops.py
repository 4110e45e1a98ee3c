"""Loops over positions: recurrent layers as native operators where these are the same function, otherwise as `Scan` of
the layer's own step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ensue.extensions.exporting.onnx.graph import described
from ensue.extensions.exporting.onnx.tracing import Trace
from ensue.nn import GRU, LSTM, Bidirectional, Elman, Recurrent
from ensue.nn.layer import blank
from ensue.types import Shared, State, hold, leaves, map_state

Step = Callable[[tuple[Tensor, ...], State], tuple[tuple[Tensor, ...], State]]
"""From what a position has, and the state, to what comes out there, and the state after it."""


@contextmanager
def loops_kept(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Inside, the layers of `model` that are loops become operators of the graph."""
    with ExitStack() as changed:
        for part in model.modules():
            if isinstance(part, Recurrent):
                changed.enter_context(replaced(part, "forward", _recurrent(part, trace)))
            elif isinstance(part, Bidirectional) and is_native(part.leftward):
                changed.enter_context(replaced(part, "forward", _both_directions(part, trace)))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Inside, `owner` has another attribute of this name."""
    own = vars(owner)
    before = own.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _recurrent(layer: Recurrent, trace: Trace) -> Callable[..., Any]:
    def forward(x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        state = layer.init_state(x.shape[0]) if state is None else state
        if is_native(layer):
            return native(trace, layer, blank(x, mask), state, mask)
        return folded(trace, layer, x, state, mask)

    return forward


def folded(trace: Trace, layer: Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    """The layer's `fold` as a `Scan`."""

    def step(given: tuple[Tensor, ...], before: State) -> tuple[tuple[Tensor, ...], State]:
        y_t, after = layer.step(given[0], before)
        return (y_t,), after if mask is None else hold(given[1], after, before)

    (y,), state = scan(trace, step, (x,) if mask is None else (blank(x, mask), mask), state)
    return y, state


def scan(
    trace: Trace, step: Step, given: Sequence[Tensor], state: State, *, reverse: bool = False
) -> tuple[list[Tensor], State]:
    """`step` at each position, dim 1 of the tensors `given`; the outputs have their positions there, too.

    Of a state, what rows share stays outside of the loop: no step changes it.
    """
    before = list(_changing(state))
    with trace.body() as body:
        heads = []

        def of_body(stem: str, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
            name = body.name(stem)
            trace.input(body, name)
            heads.append(described(name, dtype, None))
            return trace.stand_in(sizes, dtype, name)

        carried = iter([of_body("state", leaf.shape, leaf.dtype) for leaf in before])
        inside = map_state(lambda leaf: next(carried), state, shared=lambda part: part)
        here = tuple(of_body("given", x.shape[:1] + x.shape[2:], x.dtype) for x in given)
        outputs, after = step(here, inside)
        found = [*_changing(after), *outputs]
        names = [trace.graph.add("Identity", trace.of(tensor)) for tensor in found]
        tails = [described(name, tensor.dtype, None) for name, tensor in zip(names, found, strict=True)]
        graph = body.finished("step", heads, tails)
    made = trace.add(
        "Scan", *map(trace.of, [*before, *given]), outputs=len(found), body=graph, num_scan_inputs=len(given),
        scan_input_axes=[1] * len(given), scan_output_axes=[1] * len(outputs),
        scan_input_directions=[int(reverse)] * len(given), scan_output_directions=[int(reverse)] * len(outputs),
    )  # fmt: skip
    made = [made] if len(found) == 1 else made
    count, length = len(before), given[0].shape[1]
    ends = iter([trace.stand_in(x.shape, x.dtype, name) for x, name in zip(before, made, strict=False)])
    sizes = [(*y.shape[:1], length, *y.shape[1:]) for y in outputs]
    ys = [trace.stand_in(s, y.dtype, name) for s, y, name in zip(sizes, outputs, made[count:], strict=True)]
    return ys, map_state(lambda leaf: next(ends), state, shared=lambda part: part)


def _changing(state: State) -> Iterator[Tensor]:
    """The leaves of a state without what rows share."""
    if isinstance(state, Shared) or state is None:
        return
    if isinstance(state, Tensor):
        yield state
        return
    for part in state:
        yield from _changing(part)


NATIVE = (LSTM, GRU, Elman)


def is_native(layer: nn.Module) -> bool:
    """Whether an operator of ONNX is the same function."""
    return type(layer) in NATIVE


def native(
    trace: Trace, layer: Any, x: Tensor, state: State, mask: Tensor | None, *, reverse: bool = False
) -> tuple[Tensor, State]:
    """An LSTM, GRU or Elman layer over `x` (B, T, d) by its operator; with `reverse` from each row's last position."""
    with _disable_current_modes():
        arrays = _arrays(trace, layer)
    weights = [_weight(trace, layer, name, array) for name, array in zip("WRB", arrays, strict=True)]
    lengths = "" if mask is None else trace.of(mask.sum(1).to(torch.int32))
    starts = [trace.add("Unsqueeze", trace.of(leaf), trace.graph.constant([0])) for leaf in leaves(state)]
    by_position = trace.add("Transpose", trace.of(x), perm=[1, 0, 2])
    op, attributes = _operator(layer)
    outputs = trace.add(
        op, by_position, *weights, lengths, *starts, outputs=1 + len(starts), hidden_size=layer.d_out,
        direction="reverse" if reverse else "forward", **attributes,
    )  # fmt: skip
    y = trace.add("Squeeze", trace.add("Transpose", outputs[0], perm=[2, 0, 1, 3]), trace.graph.constant([2]))
    after = [trace.add("Squeeze", name, trace.graph.constant([0])) for name in outputs[1:]]
    ends = iter([trace.stand_in(leaf.shape, leaf.dtype, name) for leaf, name in zip(leaves(state), after, strict=True)])
    final = map_state(lambda leaf: next(ends), state)
    if mask is not None:  # the operator has zeros for a row without positions
        final = hold(mask[:, 0], final, state)
    return trace.stand_in((*x.shape[:2], layer.d_out), x.dtype, y), final


def _both_directions(layer: Bidirectional, trace: Trace) -> Callable[..., Any]:
    def forward(x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        rightward, last = layer.rightward(x, mask=mask)
        start = layer.leftward.init_state(x.shape[0])
        leftward, first = native(trace, layer.leftward, blank(x, mask), start, mask, reverse=True)
        return layer._merged(rightward, leftward), (last, first)

    return forward


def _operator(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    if isinstance(layer, LSTM):
        return "LSTM", {}
    if isinstance(layer, GRU):
        return "GRU", {"linear_before_reset": int(layer.reset == "after")}
    return "RNN", {"activations": ["Tanh" if layer.activation == "tanh" else "Relu"]}


def _arrays(trace: Trace, layer: Any) -> list[NDArray[Any]]:
    """W, R and B in the order of the operator: input, output, forget, candidate; update, reset, candidate."""
    W, R, b = (trace.weights[id(part)][1] for part in (layer.weight_input, layer.weight_hidden, layer.bias))
    b_hidden = torch.zeros_like(b)
    if isinstance(layer, GRU):
        if layer.reset == "after":
            b_hidden = torch.cat((b_hidden[: 2 * layer.d_out], trace.weights[id(layer.bias_candidate)][1]))
        else:  # h' = (1 - z) h + z n, where the operator has z h + (1 - z) n, and 1 - σ(v) is σ(-v)
            sign = torch.ones_like(b)
            sign[layer.d_out : 2 * layer.d_out] = -1
            W, R, b = W * sign[:, None], R * sign[:, None], b * sign
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}[_operator(layer)[0]]
    parts = [torch.cat([part.chunk(len(order))[gate] for gate in order]).unsqueeze(0) for part in (W, R, b, b_hidden)]
    return [part.detach().cpu().numpy() for part in (parts[0], parts[1], torch.cat((parts[2], parts[3]), 1))]


def _weight(trace: Trace, layer: Any, letter: str, array: NDArray[Any]) -> str:
    stem = trace.weights[id(layer.weight_input)][0].removesuffix("weight_input")
    return trace.root.weight(f"{stem}{letter}", np.asarray(array))
