"""Every layer is correct inside torch's transforms, whether it has run before or not, and unchanged afterwards."""

import copy
import io
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, func, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from ensue.engine import executing, explain
from ensue.nn import LSTM, Recurrent, SequenceLayer
from ensue.testing.laws import Subject, random, start
from ensue.types import map_state

from .table import SUBJECTS

pytestmark = pytest.mark.usefixtures("unchecked_types")  # traces would record the type checks of tests

B, T = 6, 3
Run = Callable[[Tensor], Tensor]


class Outputs(nn.Module):
    """The outputs of a layer as a function of x alone."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer, self.state = layer, map_state(Tensor.detach, start(layer))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x, self.state)[0]
        return y


class Case:
    """A layer as a function, the input of its recording, and the input of its run."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.run = subject, Outputs(subject.build())
        self.recorded, self.x = (random(B, T, self.run.layer.d_in, seed=seed) for seed in (1, 2))

    def total(self, x: Tensor) -> Tensor:
        return weighted(self.run(x))


def weighted(y: Tensor) -> Tensor:
    return (y * random(*y.shape[-3:], seed=3).to(y.dtype)).square().sum((-3, -2))


@cache
def value(subject: Subject) -> Tensor:
    case = Case(subject)  # each expected result is that of a new layer
    with executing("fold"):
        return case.run(case.x).detach()


@cache
def gradient(subject: Subject) -> Tensor:
    case = Case(subject)
    with executing("fold"):
        return torch.autograd.grad(case.total(case.x.requires_grad_()).sum(), case.x)[0]


@cache
def tangent(subject: Subject) -> Tensor:
    case = Case(subject)
    with executing("fold"), sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.functional.jvp(case.run, case.x, torch.ones_like(case.x))[1]  # type: ignore[no-any-return]


@cache
def jacobian(subject: Subject) -> Tensor:
    case = Case(subject)
    with executing("fold"):
        return torch.autograd.functional.jacobian(case.total, case.x)  # type: ignore[no-any-return]


@cache
def explanation(subject: Subject) -> object:
    return explain(subject.build())


def dual(case: Case) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(case.run(forward_ad.make_dual(case.x, torch.ones_like(case.x)))).tangent


def with_hooks(case: Case) -> Tensor:
    calls: list[object] = []
    handles = [case.run.layer.register_forward_hook(lambda *args: calls.append(args) or None)]
    handles += [case.run.layer.register_full_backward_hook(lambda *args: calls.append(args) or None)]
    x = case.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(case.total(x).sum(), x)
    for handle in handles:
        handle.remove()
    assert len(calls) == len(handles)
    return gradient


def in_threads(case: Case) -> Tensor:
    outputs: list[Tensor] = []
    threads = [threading.Thread(target=lambda: outputs.append(case.run(case.x).detach())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 3
    assert all(torch.equal(outputs[0], output) for output in outputs)
    return outputs[0]


def forked(case: Case) -> Tensor:
    expected = value(case.subject)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if torch.allclose(case.run(case.x), expected) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    return expected


def infers(case: Case) -> Tensor:
    with torch.inference_mode():
        return case.run(case.x).clone()


def called_with_others(case: Case) -> Tensor:
    weights = {name: weight.detach() * 1 for name, weight in case.run.named_parameters()}
    return func.functional_call(case.run, weights, (case.x,))


def through_onnx(case: Case, *, dynamo: bool) -> Tensor:
    """Run the layer in ONNX, in float32, since the runtime lacks float64. The exporter may refuse an operation."""
    sessions, file = pytest.importorskip("onnxruntime"), io.BytesIO()
    if dynamo:
        pytest.importorskip("onnxscript")
    run = copy.deepcopy(case.run).float()
    run.state = map_state(lambda leaf: leaf.float() if leaf.is_floating_point() else leaf, run.state)
    try:
        torch.onnx.export(run, (case.recorded.float(),), file, dynamo=dynamo, input_names=["x"])  # type: ignore[arg-type]
    except torch.onnx.errors.UnsupportedOperatorError:
        return value(case.subject)
    session = sessions.InferenceSession(file.getvalue())
    assert [value_info.name for value_info in session.get_inputs()] == ["x"]
    output = torch.from_numpy(session.run(None, {"x": case.x.float().numpy()})[0])
    torch.testing.assert_close(output, value(case.subject).float(), rtol=1e-3, atol=1e-4)
    return value(case.subject)


def recorded(case: Case) -> Tensor:
    """Record the layer, without the stack of each operation, which takes half of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._subclasses.fake_tensor.traceback.extract_stack", lambda: None)
        traced: Tensor = make_fx(torch.no_grad()(case.run))(case.recorded)(case.x)
    return traced


def compiled(case: Case) -> Tensor:
    """Compile the layer, without a measurement of each guard, which takes half of the time."""
    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._dynamo.guards.profile_guard_manager", lambda *arguments: 0.0)
        output: Tensor = torch.compile(case.run, backend="eager")(case.x)
    return output


class Transform(NamedTuple):
    """A transform: a function of a case, and its expected result."""

    run: Callable[[Case], Tensor]
    expected: Callable[[Subject], Tensor]
    is_slow: bool = False


TRANSFORMS = {
    "torch.jit.trace": Transform(
        lambda case: torch.jit.trace(case.run, case.recorded, check_trace=False)(case.x), value
    ),
    "make_fx": Transform(recorded, value),
    "vmap": Transform(lambda case: func.vmap(case.run)(torch.stack((case.recorded, case.x)))[1], value),
    "grad": Transform(lambda case: func.grad(lambda x: case.total(x).sum())(case.x), gradient),
    "jvp": Transform(lambda case: func.jvp(case.run, (case.x,), (torch.ones_like(case.x),))[1], tangent),
    "jacrev": Transform(lambda case: func.jacrev(case.total)(case.x), jacobian),
    "forward mode": Transform(dual, tangent),
    "batched gradients": Transform(
        lambda case: torch.autograd.functional.jacobian(case.total, case.x, vectorize=True), jacobian
    ),
    "functional_call": Transform(called_with_others, value),
    "hooks": Transform(with_hooks, gradient),
    "deepcopy": Transform(lambda case: copy.deepcopy(case.run)(case.x), value),
    "threads": Transform(in_threads, value),
    "inference_mode": Transform(infers, value),
    "fork": Transform(forked, value, is_slow=True),
    "torch.compile": Transform(compiled, value, is_slow=True),
    "torch.export": Transform(
        lambda case: torch.export.export(case.run, (case.recorded,)).module()(case.x), value, is_slow=True
    ),
    "torch.onnx.export": Transform(lambda case: through_onnx(case, dynamo=False), value, is_slow=True),
    "torch.onnx.export, dynamo": Transform(lambda case: through_onnx(case, dynamo=True), value, is_slow=True),
}
QUICK = {"lstm", "mingru", "clockwork", "input feeding of an lstm", "additive attention", "attention rotary"}
"""One layer for each execution: compiled, a scan, other C code, feeding, an autograd function, fused attention."""
CASES = [
    pytest.param(
        subject, name, id=f"{subject.name}-{name}".replace(" ", "_"), marks=[] if is_quick else pytest.mark.slow
    )
    for subject in SUBJECTS
    for name, transform in TRANSFORMS.items()
    for is_quick in [
        subject.name in QUICK and (not transform.is_slow or (subject.name == "mingru" and name != "torch.compile"))
    ]
]


def check(subject: Subject, transform: Transform, *, is_warm: bool) -> None:
    case = Case(subject)
    if is_warm:
        case.total(case.recorded.clone().requires_grad_()).sum().backward()
    result = transform.run(case).detach()
    torch.testing.assert_close(result, transform.expected(subject), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(case.run(case.x).detach(), value(subject))
    if isinstance(case.run.layer, Recurrent):
        assert explain(case.run.layer) == explanation(subject)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("subject", "name"), CASES)
def test_layers_are_correct_inside_transforms(subject: Subject, name: str) -> None:
    for is_warm in (False, True):
        check(subject, TRANSFORMS[name], is_warm=is_warm)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ["torch.jit.trace", "forward mode"])
def test_a_layer_that_ignores_transforms_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.engine.execution.is_transformed", lambda: False)
    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)):
        check(Subject("lstm", lambda: LSTM(3, 4)), TRANSFORMS[name], is_warm=True)
