"""Which way a layer runs, and running it: from a layer, x and a state to the outputs and the final state."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from itertools import islice
from operator import attrgetter
from threading import RLock
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ensue.engine.c_library import compiler, library
from ensue.engine.c_passes import CompiledPasses, c_passes
from ensue.engine.feedback import Maker, run_fed
from ensue.engine.packing import Packing
from ensue.engine.plain_passes import PlainPasses
from ensue.engine.products import Bf16Kernel, PackedWeights, bf16_kernel, cached_for, has_bfloat16
from ensue.engine.program import build
from ensue.engine.runner import Runner
from ensue.engine.snapshot import Snapshot, has_hooks
from ensue.engine.storage import is_transformed
from ensue.engine.trace import TracedStep, Untraceable, trace
from ensue.notices import say_once
from ensue.types import State, leaves, map_state
from ensue.version import package_text

Kernel = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State] | None]
Execution = Literal["compiled", "plain", "fold"]

_allowed: ContextVar[Execution] = ContextVar("allowed", default="compiled")
_runners: WeakKeyDictionary[nn.Module, dict[Any, list[tuple[Snapshot, Runner | str]]]] = WeakKeyDictionary()
_building = RLock()
"""Of threads that run a layer for the first time at once, one traces and compiles; a step may run layers itself."""

HOOKED = "hooks on its parts, which want to see each position"
MOST_TRACES = 16
"""Of one layer in one way of running. Numbers that change at each call would be compiled at each call."""


@contextmanager
def executing(execution: Execution) -> Iterator[None]:
    """Inside of this block, the fastest way that layers may run.

    "compiled" is the default. With "plain" nothing is compiled: passes run in torch operations. With "fold" nothing is
    traced either: `step` runs at each position under autograd. Raises `ValueError` for any other name.
    """
    if execution not in get_args(Execution):
        raise ValueError(f"execution is compiled, plain or fold, not {execution!r}")
    token = _allowed.set(execution)
    try:
        yield
    finally:
        _allowed.reset(token)


def explain(layer: nn.Module) -> str:
    """How `layer` runs over whole sequences, in one line."""
    cell = getattr(layer, "fed_cell", None)  # what `unroll_fed` runs in the layer's place
    runner = _runner(layer if cell is None else cell)
    if isinstance(runner, str):
        return f"step by step under autograd: its step holds {runner}"
    if cell is None:
        return _described(runner)
    return f"{_described(runner)}; what its cell is fed, in torch operations"


def _described(runner: Runner) -> str:
    if isinstance(runner.functions, CompiledPasses):
        return "compiled"
    if compiler() is None:
        return "in torch operations, position by position: no C compiler (cc, gcc, clang or the package ziglang) found"
    return "in torch operations, position by position"


def may_compile() -> bool:
    """Whether layers run compiled if they can: False inside of `executing("plain")` and `executing("fold")`."""
    return _allowed.get() == "compiled"


def passes(x: Tensor) -> ctypes.CDLL | None:
    """The functions of passes.c, if they may read `x` and tensors of its type: float32 or bfloat16, on a CPU.

    None where nothing is compiled, and inside of torch's transforms. Sizes are checked by whoever calls a function.
    """
    if is_transformed():
        return None
    is_plain = type(x) is Tensor and torch._C._has_storage(x)
    is_known = x.is_cpu and x.dtype in (torch.float32, torch.bfloat16) and not x.is_neg() and x.numel() > 0
    return _passes() if is_plain and is_known and may_compile() else None


@cache
def _passes() -> ctypes.CDLL | None:
    text = package_text("engine/passes.c")
    found = library(text, torch.float32, ("-ffp-contract=off",))
    if found is not None:
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        found.masks.argtypes = [*[number] * 4, ctypes.c_float, pointer, number, pointer, pointer, number]
        found.turned.argtypes = [number, number, *[pointer] * 4, ctypes.c_float, pointer, pointer, number]
        found.surprisals.argtypes = [*[number] * 3, ctypes.c_float, *[pointer] * 4, number]
        found.attention_weights.argtypes = [number, number, pointer, ctypes.c_float, *[pointer] * 4, number]
        found.attention_changes.argtypes = [*[number] * 3, ctypes.c_float, *[pointer] * 3, number]
    return found


def folds() -> bool:
    """Whether layers run step by step: True inside of `executing("fold")`, and of torch's transforms."""
    return _allowed.get() == "fold" or is_transformed()


def unroll(
    layer: Any, x: Tensor, state: State, mask: Tensor | None, kernel: Kernel | None = None
) -> tuple[Tensor, State] | None:
    """The results of `layer.fold`, faster: the outputs (B, T, d_out), with zeros at padding, and the final state.

    `kernel(x, state, mask)` computes them where the layer does not run as compiled code; it gives None if it cannot.
    None if the layer has to run step by step. Raises `ValueError` if x has another number of features than the layer.
    """
    if folds() or x.shape[0] == 0 or x.shape[1] == 0:
        return None
    runner = _runner(layer) if may_compile() and x.device.type == "cpu" else None
    if kernel is not None and not _is_compiled(runner) and (found := kernel(x, state, mask)) is not None:
        return found

    def run(runner: Runner, state: State, packing: Packing) -> Sequence[Tensor]:
        kept = cached_for(runner, lambda: PackedWeights(weights_of(layer, runner.trace)))
        before = _before(layer, runner, x, state, packing, kept)
        return runner(before, packing, kept, parameters=_parameters(layer, runner.trace))

    return _packed(layer, _runner(layer) if runner is None else runner, x, state, mask, run)


def unroll_fed(
    layer: Any,
    x: Tensor,
    state: State,
    mask: Tensor | None,
    make: Maker,
    *,
    of_rows: list[Tensor],
    others: list[Tensor],
) -> tuple[Tensor, State] | None:
    """As `unroll`, for a layer whose first leaf of the state is fed from outside at each position (`feedback.py`).

    `make` is given `of_rows`, with a row for each of the batch, in the order of the packing, then `others`. The outputs
    are what was fed.
    """
    if folds() or x.shape[0] == 0 or x.shape[1] == 0:
        return None

    def run(runner: Runner, state: State, packing: Packing) -> Sequence[Tensor]:
        given = [*map(packing.sorted, of_rows), *others]
        given = [tensor.to(runner.dtype) if tensor.is_floating_point() else tensor for tensor in given]
        before, parameters = _before(layer, runner, x, state, packing), _parameters(layer, runner.trace)
        return run_fed(runner, packing, before, make, given, parameters)

    return _packed(layer, _runner(layer), x, state, mask, run)


def _packed(
    layer: Any,
    runner: Runner | str,
    x: Tensor,
    state: State,
    mask: Tensor | None,
    run: Callable[[Runner, State, Packing], Sequence[Tensor]],
) -> tuple[Tensor, State] | None:
    """The results of `run`, the packed outputs and final states, in the order of the rows."""
    if isinstance(runner, str):
        return None
    if x.shape[2] != layer.d_in:
        raise ValueError(f"x has {x.shape[2]} features, {type(layer).__name__} reads {layer.d_in}")
    packing = Packing.of(x, mask)
    if packing.size == 0:
        return None
    state = layer.init_state(len(x)) if state is None else state
    is_autocast = torch.is_autocast_enabled(x.device.type)
    with torch.autocast(x.device.type, enabled=False) if is_autocast else nullcontext():
        packed, *finals = run(runner, state, packing)
        after = iter(map(packing.unsorted, finals))
        return packing.unpacked(packed), map_state(lambda leaf: next(after).view_as(leaf), state)


def _is_compiled(runner: Runner | str | None) -> bool:
    """Whether it runs as compiled C code: under autocast in its type, or in float32 without products in bfloat16."""
    if not isinstance(runner, Runner) or not isinstance(runner.functions, CompiledPasses):
        return False
    return not torch.is_autocast_enabled("cpu") or runner.functions.bf16_kernel is not None or not has_bfloat16()


def _runner(layer: nn.Module) -> Runner | str:
    """The program of a layer in its present mode, or why it has none."""
    some = next(layer.parameters(), None)
    dtype, device = (torch.get_default_dtype(), torch.device("cpu")) if some is None else (some.dtype, some.device)
    execution = _allowed.get()
    known = _runners.setdefault(layer, {})
    in_bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    kernel = bf16_kernel() if in_bf16 and dtype == torch.float32 else None
    key = (dtype, device, execution, kernel)
    found = _known(layer, known.get(key, []))
    if found is None:
        with _building:
            found = _known(layer, known.get(key, []))  # another thread may have built it meanwhile
            if found is None:
                found = _new(layer, known.setdefault(key, []), partial(_built, layer, dtype, device, kernel))
    return found


def _known(layer: nn.Module, traces: list[tuple[Snapshot, Runner | str]]) -> Runner | str | None:
    """The runner that was built when the layer was as it is now."""
    return next((runner for snapshot, runner in traces if snapshot.holds(layer)), None)


def _new(
    layer: nn.Module, traces: list[tuple[Snapshot, Runner | str]], build: Callable[[], Runner | str]
) -> Runner | str:
    """A runner for the layer as it is now, which is added to `traces`."""
    if any(map(has_hooks, islice(layer.modules(), 1, None))):
        return HOOKED
    if len(traces) == MOST_TRACES:
        say_once(
            f"traces of {type(layer).__name__}",
            f"{type(layer).__name__} runs step by step, which is slower: an attribute of it changes from call to call;"
            " a buffer may change",
        )
        return "attributes that change from call to call"
    runner = build()
    traces.append((Snapshot(layer), runner))
    return runner


def _built(layer: nn.Module, dtype: torch.dtype, device: torch.device, kernel: Bf16Kernel | None) -> Runner | str:
    try:
        traced = trace(layer)
        program = build(traced)
    except Untraceable as reason:
        return str(reason)
    except RecursionError:
        return "more operations after one another than can be followed"
    passes = c_passes(program, dtype, kernel) if may_compile() and device.type == "cpu" else None
    return Runner(traced, program, passes or PlainPasses(program), dtype)


def _before(
    layer: nn.Module, runner: Runner, x: Tensor, state: State, packing: Packing, kept: PackedWeights | None = None
) -> list[Tensor]:
    """The arrays that the passes read, computed by torch from parameters, x and the state."""
    before = [packing.sorted(leaf).flatten(1).to(runner.dtype).resolve_neg().contiguous() for leaf in leaves(state)]
    packed = packing.packed(x).to(runner.dtype).resolve_neg()
    weights = weights_of(layer, runner.trace) if kept is None else kept.weights
    return [packed if packed.stride(1) == 1 else packed.contiguous(), *before, *weights]


def weights_of(layer: nn.Module, trace: TracedStep) -> list[Tensor]:
    """The vectors and matrices of a traced step."""
    values = trace.values(_parameters(layer, trace))
    matrices = [matrix.of(values[matrix.key]) for matrix in trace.matrices]
    return [*(values[key].reshape(1, -1).contiguous() for key in trace.vectors), *matrices]


def _parameters(layer: nn.Module, trace: TracedStep) -> list[Tensor]:
    return [attrgetter(name)(layer) for name in trace.parameters]
