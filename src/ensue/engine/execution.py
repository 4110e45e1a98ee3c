"""The choice of how a layer runs, and its execution: from x and a state to the outputs and the final state."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from threading import RLock
from typing import Any, Literal, TypeGuard, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ensue.engine.c_library import compiler, library
from ensue.engine.c_passes import CompiledPasses, c_passes
from ensue.engine.feedback import FeedbackFactory, run_fed
from ensue.engine.products import ProductKernel, bf16_kernel, cached_for, has_bfloat16, has_int8
from ensue.engine.program import build
from ensue.engine.runner import PlainPasses, Runner
from ensue.engine.storage import Packing, is_transformed, unmasked_packing
from ensue.engine.trace import Snapshot, TracedStep, Untraceable, has_hooks, trace
from ensue.notices import warn_once
from ensue.types import State, change_temporarily, leaves, map_state
from ensue.version import package_text

Kernel = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State] | None]
Execution = Literal["compiled", "plain", "fold"]

_allowed: ContextVar[Execution] = ContextVar("allowed", default="compiled")
_runners: WeakKeyDictionary[nn.Module, dict[Any, list[tuple[Snapshot, Runner | str]]]] = WeakKeyDictionary()
_build_lock = RLock()
"""Held while a layer is traced and compiled; reentrant, since a step may run other layers."""

HOOKS_REASON = "hooks on submodules, which expect a call for each position"
MAX_TRACES = 16
"""The maximum number of traces of a layer for a type and device. Some layers change an attribute at each call."""


def executing(execution: Execution) -> AbstractContextManager[None]:
    """Limit how layers run in a `with` block. Raises ValueError for an unknown name.

    "compiled", the default, allows passes in C. "plain" allows passes in torch operations. "fold" runs `step` at each
    position under autograd, without a trace.
    """
    if execution not in get_args(Execution):
        raise ValueError(f"execution must be compiled, plain or fold, found {execution!r}")
    return change_temporarily(_allowed.set, execution, _allowed.get())


def explain(layer: nn.Module) -> str:
    """Return how `layer` runs over sequences, in one line."""
    cell = getattr(layer, "fed_cell", None)  # `unroll_fed` runs the cell in place of the layer
    runner = _get_runner(layer if cell is None else cell)
    if isinstance(runner, str):
        return f"step by step under autograd: its step contains {runner}"
    is_compiled = isinstance(runner.functions, CompiledPasses)
    how = "compiled" if is_compiled else "in torch operations, position by position"
    if not is_compiled and compiler() is None:
        how += ": no C compiler (cc, gcc, clang or the package ziglang) found"
    return how + ("" if cell is None else "; the feedback to its cell runs in torch operations")


def may_compile() -> bool:
    """Return whether layers may run compiled: False inside `executing("plain")` and `executing("fold")`."""
    return _allowed.get() == "compiled"


def c_functions(x: Tensor) -> ctypes.CDLL | None:
    """Return the functions of passes.c if they support `x` (on the CPU, float32 or bfloat16). Callers check sizes."""
    if is_transformed():
        return None
    is_plain = type(x) is Tensor and torch._C._has_storage(x)
    is_supported = x.is_cpu and x.dtype in (torch.float32, torch.bfloat16) and not x.is_neg() and x.numel() > 0
    return _load_c_functions() if is_plain and is_supported and may_compile() else None


@cache
def _load_c_functions() -> ctypes.CDLL | None:
    functions = library(package_text("engine/passes.c"), torch.float32, ("-ffp-contract=off",))
    if functions is not None:
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        functions.masks.argtypes = [*[number] * 4, ctypes.c_float, pointer, number, pointer, pointer, number]
        functions.rotate.argtypes = [number, number, *[pointer] * 4, ctypes.c_float, pointer, pointer, number]
        functions.surprisals.argtypes = [*[number] * 3, ctypes.c_float, *[pointer] * 4, number]
        functions.attention_weights.argtypes = [number, number, pointer, ctypes.c_float, *[pointer] * 4, number]
        functions.attention_gradients.argtypes = [*[number] * 3, ctypes.c_float, *[pointer] * 3, number]
        functions.chain_sums.argtypes = [*[number] * 3, *[pointer] * 7]
    return functions


def folds() -> bool:
    """Return whether layers run step by step: inside `executing("fold")`, and inside torch's transforms."""
    return _allowed.get() == "fold" or is_transformed()


def unroll(
    layer: Any, x: Tensor, state: State, mask: Tensor | None, kernel: Kernel | None = None, *,
    only_compiled: bool = False,
) -> tuple[Tensor, State] | None:  # fmt: skip
    """Return the results of `layer.fold`: outputs (B, T, d_out), zero at padding, and the final state.

    If passes are not compiled, `kernel` runs first; it may return None. The result is None if the layer has to run step
    by step, or if `only_compiled` and passes are not. Raises ValueError unless x has `layer.d_in` features.
    """
    if folds() or x.is_meta or x.numel() == 0:
        return None
    runner = _get_runner(layer) if may_compile() and x.is_cpu else None
    if kernel is not None and not _is_compiled(runner) and (results := kernel(x, state, mask)) is not None:
        return results
    if only_compiled and not _is_compiled(runner):
        return None

    def run(runner: Runner, state: State, packing: Packing) -> Sequence[Tensor]:
        packed, states = _arguments(runner, x, state, packing)
        return runner(packed, states, packing, read_parameters(layer, runner.trace))

    return _run_packed(layer, _get_runner(layer) if runner is None else runner, x, state, mask, run)


def run_known(layer: Any, x: Any, state: State = None) -> tuple[Tensor, State] | None:
    """Return the results of `unroll` by a plan, without gradients and without checks; None if there is no plan.

    A call with tensors of the same layouts has made the plan after all checks, and the layer has not changed since.
    """
    if torch.is_grad_enabled() or not may_compile() or is_transformed() or torch.is_autocast_enabled("cpu"):
        return None
    runner = _find_cached_runner(layer) if type(x) is Tensor and x.dim() == 3 else None
    if not _is_compiled(runner) or (start := runner.init_state(len(x))) is None:
        return None
    state = start if state is None else state
    if type(state) is not type(start) or any(type(leaf) is not Tensor for leaf in state):
        return None
    packing = unmasked_packing(*x.shape[:2], None)
    results = runner.infer(packing.packed(x), state, packing, read_parameters(layer, runner.trace), is_known=True)
    return None if results is None else (packing.unpacked(results[0]), start._make(results[1:]))


def unroll_fed(
    layer: Any, x: Tensor, state: State, mask: Tensor | None, make: FeedbackFactory, *, row_tensors: list[Tensor],
    tensors: list[Tensor],
) -> tuple[Tensor, State] | None:  # fmt: skip
    """Run a cell like `unroll`. The `Feedback` of `make` computes the outputs, and the last output begins the state."""
    if folds() or x.is_meta or x.numel() == 0:
        return None

    def run(runner: Runner, state: State, packing: Packing) -> Sequence[Tensor]:
        reads = [*map(packing.sorted, row_tensors), *tensors]
        reads = [tensor.to(runner.dtype) if tensor.is_floating_point() else tensor for tensor in reads]
        (packed, states), parameters = _arguments(runner, x, state, packing), read_parameters(layer, runner.trace)
        arguments = [packed, *states, *runner.trace.weights(parameters)]
        return run_fed(runner, packing, arguments, make, reads, parameters)

    return _run_packed(layer, _get_runner(layer), x, state, mask, run)


def _run_packed(
    layer: Any, runner: Runner | str, x: Tensor, state: State, mask: Tensor | None,
    run: Callable[[Runner, State, Packing], Sequence[Tensor]],
) -> tuple[Tensor, State] | None:  # fmt: skip
    """Return the outputs and final states of `run`, unpacked, in the order of the batch; None without a runner."""
    if isinstance(runner, str):
        return None
    if x.shape[2] != layer.d_in:
        raise ValueError(f"x has {x.shape[2]} features, {type(layer).__name__} reads {layer.d_in}")
    packing = Packing.of(x, mask)
    if packing.size == 0:
        return None
    state = (runner.init_state(packing.batch) or layer.init_state(packing.batch)) if state is None else state
    is_autocast = torch.is_autocast_enabled(x.device.type)
    with torch.autocast(x.device.type, enabled=False) if is_autocast else nullcontext():
        packed, *finals = run(runner, state, packing)
    after = iter(map(packing.unsorted, finals))
    y = packing.unpacked(packed)
    return y, map_state(lambda leaf: next(after) if leaf.dim() == 2 else next(after).view(leaf.shape), state)


def _is_compiled(runner: Runner | str | None) -> TypeGuard[Runner]:
    """Return whether a runner is compiled; under autocast, also in bfloat16, if the processor has such products."""
    if not isinstance(runner, Runner) or not isinstance(runner.functions, CompiledPasses):
        return False
    return not torch.is_autocast_enabled("cpu") or runner.functions.bf16_kernel is not None or not has_bfloat16()


def _find_runner(layer: nn.Module) -> tuple[Runner | str | None, tuple[Any, ...]]:
    """Return the runner of an unchanged layer, or None, and the key of this runner among the layer's runners."""
    tensors = chain(layer._parameters.values(), layer.parameters())
    parameter = next((tensor for tensor in tensors if tensor is not None), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    dtype = torch.get_default_dtype() if parameter is None else parameter.dtype
    in_bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    kernel: ProductKernel | None = bf16_kernel() if in_bf16 and dtype == torch.float32 else None
    if getattr(layer, "in_int8", False) and dtype == torch.float32 and not torch.is_grad_enabled() and has_int8():
        kernel = "int8"
    key = dtype, device, kernel, _allowed.get()
    traces = _runners.get(layer, {}).get(key, ())
    return next((runner for snapshot, runner in traces if snapshot.matches(layer)), None), key


def _find_cached_runner(layer: nn.Module) -> Runner | str | None:
    """Return the runner of a layer, or None. Frozen layers are compared with their snapshot once."""
    cache: dict[str, Any] | None = cached_for(layer, dict)
    cache = {} if cache is None else cache
    cache["runner"] = runner = cache.get("runner") or _find_runner(layer)[0]
    return runner


def _get_runner(layer: nn.Module) -> Runner | str:
    """Return the runner of a layer in its current mode, or the reason why the layer runs step by step."""
    runner, _ = _find_runner(layer)
    if runner is None:
        with _build_lock:
            runner, key = _find_runner(layer)  # another thread may have built the runner meanwhile
            runner = _add_runner(layer, *key) if runner is None else runner
    return runner


def _add_runner(layer: nn.Module, *key: Any) -> Runner | str:
    traces = _runners.setdefault(layer, {}).setdefault(key, [])
    if any(map(has_hooks, islice(layer.modules(), 1, None))):
        return HOOKS_REASON
    if len(traces) == MAX_TRACES:
        warn_once(
            f"traces of {type(layer).__name__}",
            f"{type(layer).__name__} runs step by step, which is slower: an attribute of the layer changes from call to"
            " call; make the attribute a buffer",
        )
        return "attributes that change from call to call"
    runner = _build(layer, *key[:3])
    traces.append((Snapshot(layer), runner))
    return runner


def _build(layer: nn.Module, dtype: torch.dtype, device: torch.device, kernel: ProductKernel | None) -> Runner | str:
    try:
        traced = trace(layer)
        program = build(traced)
    except Untraceable as reason:
        return str(reason)
    except RecursionError:
        return "a chain of operations that exceeds the recursion limit"
    passes = c_passes(program, dtype, kernel) if may_compile() and device.type == "cpu" else None
    return Runner(traced, program, passes or PlainPasses(program), dtype)


def _arguments(runner: Runner, x: Tensor, state: State, packing: Packing) -> tuple[Tensor, list[Tensor]]:
    """Return x and the states in the layout of the passes."""
    before = [leaf if leaf.dim() == 2 else leaf.flatten(1) for leaf in leaves(state)]
    return _plain(packing.packed(x), runner.dtype), [_plain(packing.sorted(leaf), runner.dtype) for leaf in before]


def _plain(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    tensor = tensor if tensor.dtype is dtype and not tensor.is_neg() else tensor.to(dtype).resolve_neg()
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()


def read_parameters(layer: nn.Module, trace: TracedStep) -> list[Tensor]:
    """Return the current tensors of a layer that the traced step reads."""
    direct = layer._parameters
    return [direct[name] if name in direct else attrgetter(name)(layer) for name in trace.parameters]  # type: ignore[misc]
