"""Gradients of gradients: of every layer, and of every autograd function with a custom backward pass."""

import importlib.util
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import ensue
from engine.twins import needs_compiler
from ensue.engine import executing
from ensue.nn import LSTM, Clockwork, DotAttention, MinGRU, SequenceLayer
from ensue.nn.attention.positions import rotate
from ensue.nn.attention.scores import additive_scores, attention_weights
from ensue.nn.heads.chain import log_partition
from ensue.nn.heads.softmax import linear_cross_entropy
from ensue.nn.recurrent.linear_recurrence import scan
from ensue.testing.laws import MASK, Subject, float_leaves, inputs, mask_outputs, random, start
from ensue.types import Memory

from .table import CASES, feeding


def squared(y: Tensor) -> Tensor:
    return y.square()


def identity(y: Tensor) -> Tensor:
    """Return `y`, whose gradient is constant."""
    return y


def gradients(
    layer: SequenceLayer, x: Tensor, function: Callable[[Tensor], Tensor], *, history: bool = True
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the sources and the gradients by them."""
    y, final = layer(x, start(layer), mask=MASK)
    results = mask_outputs(y), *float_leaves(final)
    total = sum((function(result) * random(*result.shape, seed=7)).sum() for result in results)
    sources = [x, *layer.parameters()]
    return sources, list(torch.autograd.grad(total, sources, create_graph=history, materialize_grads=True))


def product(layer: SequenceLayer, function: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the product of the Hessian with a random direction."""
    sources, gradients_by_sources = gradients(layer, inputs(layer), function)
    directional = sum((g * random(*g.shape, seed=9)).sum() for g in gradients_by_sources if g.requires_grad)
    if not isinstance(directional, Tensor):
        return []
    return list(torch.autograd.grad(directional, sources, allow_unused=True, materialize_grads=True))


def differences(layer: SequenceLayer, function: Callable[[Tensor], Tensor], step: float = 1e-6) -> list[Tensor]:
    """Return the product with the Hessian, computed from gradients at two points."""
    ends = []
    for side in (step, -step):
        x = inputs(layer)
        moved = {name: (p + side * random(*p.shape, seed=9)).detach() for name, p in layer.named_parameters()}
        with torch.no_grad():
            x += side * random(*x.shape, seed=9)
            before = {name: p.clone() for name, p in layer.named_parameters()}
            layer.load_state_dict(moved, strict=False)
        ends.append([gradient.detach() for gradient in gradients(layer, x, function, history=False)[1]])
        layer.load_state_dict(before, strict=False)
    return [(upper - lower) / (2 * step) for upper, lower in zip(*ends, strict=True)]


def check_second_derivatives(subject: Subject) -> None:
    """Assert equal second derivatives, with torch's attention by products: its fused kernels refuse them."""
    layer = subject.build()
    with sdpa_kernel(SDPBackend.MATH):
        compare(layer, is_smooth=subject.name not in WITH_JUMPS)


WITH_JUMPS = {"zoneout lstm with masks given", "hard attention", "hard attention before the cell"}
"""Layers whose gradients at two points may belong to two choices."""


def compare(layer: SequenceLayer, *, is_smooth: bool = True) -> None:
    for function in (identity, squared):
        second_derivatives = product(layer, function)
        if is_smooth and second_derivatives:
            torch.testing.assert_close(second_derivatives, differences(layer, function), rtol=1e-4, atol=1e-5)
        else:
            with executing("fold"):
                torch.testing.assert_close(second_derivatives, product(layer, function))


@pytest.mark.parametrize("subject", CASES)
def test_second_derivatives_of_layers_equal_differences(subject: Subject) -> None:
    """No compiler is used, since second derivatives always run in torch operations."""
    with executing("plain"):
        check_second_derivatives(subject)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("subject", CASES)
def test_second_derivatives_of_compiled_layers_equal_differences(subject: Subject) -> None:
    check_second_derivatives(subject)


def d(*shape: int, seed: int = 1) -> Tensor:
    return random(*shape, seed=seed).requires_grad_()


def of_layer(layer: SequenceLayer, x: Tensor) -> Tensor:
    layer = layer.double().eval()
    memory = None if layer.d_memory is None else Memory(random(len(x), 3, layer.d_memory))
    y, _ = layer(x, layer.init_state(len(x), memory))
    return y


TARGETS = torch.tensor([1, 0, 2])
FUNCTIONS: dict[str, Callable[[], tuple[Callable[..., Tensor], list[Tensor]]]] = {
    "_Recurrence": lambda: (partial(of_layer, LSTM(2, 3)), [d(2, 3, 2)]),
    "_FedRecurrence": lambda: (partial(of_layer, feeding()), [d(2, 2, feeding().d_in)]),
    "ClockworkFunction": lambda: (partial(of_layer, Clockwork(2, 4, periods=(1, 2))), [d(2, 5, 2)]),
    "_Scan": lambda: (scan, [d(2, 3, 2), d(2, 3, 2, seed=2), d(2, 2)]),
    "_AdditiveScores": lambda: (additive_scores, [d(2, 2, 3), d(2, 4, 3, seed=2), d(3)]),
    "_LogPartition": lambda: (log_partition, [d(2, 3, 3), d(3), d(3, 3), d(3, seed=2)]),
    "_LinearCrossEntropy": lambda: (
        lambda h, weight, bias: linear_cross_entropy(h, weight, bias, TARGETS, label_smoothing=0.1),
        [d(3, 2), d(4, 2), d(4)],
    ),
    "_Weights": lambda: (lambda x: attention_weights(x.float(), None, 0.5).double(), [d(2, 1, 3, 4)]),
    "_Rotation": lambda: (
        lambda x: rotate((random(2, 3, 1).float(), random(2, 3, 1).float()), x.float())[0].double() ** 2,
        [d(2, 1, 3, 2)],
    ),
}
"""For each autograd function of the package, a function that uses it."""


@cache
def modules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(ensue.__path__, "ensue.")]


def source(module: str) -> str:
    origin = (importlib.util.find_spec(module) or pytest.fail(module)).origin
    assert origin is not None
    return Path(origin).read_text(encoding="utf-8")


@cache
def autograd_functions() -> set[type]:
    """Return the autograd functions of all modules of the package."""
    names = [name for name in modules() if "autograd.Function" in source(name)]
    classes = {kind for name in names for _, kind in inspect.getmembers(importlib.import_module(name), inspect.isclass)}
    return {kind for kind in classes if issubclass(kind, torch.autograd.Function)}


def test_every_autograd_function_is_in_the_table() -> None:
    assert {kind.__name__ for kind in autograd_functions()} == FUNCTIONS.keys()
    assert not [name for name in modules() if "once_differentiable" in source(name)]


@needs_compiler
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_of_functions_equal_differences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (kind,) = (kind for kind in autograd_functions() if kind.__name__ == name)
    ran: list[str] = []
    forward = kind.forward
    monkeypatch.setattr(kind, "forward", staticmethod(lambda *args: ran.append(name) or forward(*args)))
    function, sources = FUNCTIONS[name]()
    in_float32 = {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}  # a random direction may miss an error
    options = in_float32 if name in ("_Weights", "_Rotation") else {"fast_mode": True}
    assert torch.autograd.gradgradcheck(function, sources, **options)
    total = function(*sources).sin().sum()
    recorded, compiled = (torch.autograd.grad(total, sources, create_graph=history) for history in (True, False))
    torch.testing.assert_close(recorded, compiled, atol=1e-5, rtol=1e-5)
    assert ran


def test_fused_attention_refuses_a_second_derivative() -> None:
    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        compare(Subject("dot attention", lambda: DotAttention(3, 3)).build())


def test_a_backward_pass_without_a_history_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plant is `once_differentiable`."""
    monkeypatch.setattr("ensue.engine.runner.needs_history", lambda errors: False)
    with pytest.raises((AssertionError, RuntimeError)):
        check_second_derivatives(Subject("lstm", lambda: MinGRU(3, 4)))
