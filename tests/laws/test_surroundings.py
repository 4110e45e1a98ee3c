"""Layers and heads give equal numbers with other defaults of torch, or with hooks on the tensors that autograd saves.

The tests are in float32 and in training, in which dropout masks, attention weights and losses are computed in C.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ensue.nn import LSTM
from ensue.nn.attention.scores import attention_weights
from ensue.nn.draws import normal, uniform
from ensue.nn.heads.crf import LinearChainCRF
from ensue.nn.heads.softmax import linear_cross_entropy
from ensue.testing.laws import MASK, Subject, random
from ensue.types import Memory

from .table import SUBJECTS

QUICK = {
    "lstm", "mingru", "clockwork", "input feeding of an lstm", "additive attention", "attention rotary", "attention",
    "dropout", "zoneout lstm",
}  # fmt: skip
Call = Callable[[Callable[..., Tensor], list[Tensor]], Tensor]


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def within(surroundings: Callable[[], Any]) -> Call:
    def call(function: Callable[..., Tensor], sources: list[Tensor]) -> Tensor:
        with surroundings():
            return function(*sources)

    return call


SURROUNDINGS: dict[str, Call] = {
    "bfloat16 as default": within(lambda: default_type(torch.bfloat16)),
    "float64 as default": within(lambda: default_type(torch.float64)),
    "another device as default": within(lambda: torch.device("meta")),
    "checkpoint": lambda function, sources: checkpoint(function, *sources, use_reentrant=False),  # type: ignore[no-any-return]
    "anomalies": within(torch.autograd.detect_anomaly),
    "saved copies": within(lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)),
}


def results(call: Call, function: Callable[..., Tensor], sources: Sequence[Tensor]) -> list[Tensor]:
    inputs = [x.detach().clone().requires_grad_() for x in sources]
    torch.manual_seed(3)
    y = call(function, inputs)
    weighted = (y * random(*y.shape, seed=7).to(y.dtype)).square().sum()
    if not weighted.requires_grad:
        return [y]
    return [y.detach(), *torch.autograd.grad(weighted, inputs, allow_unused=True, materialize_grads=True)]


def check(make: Callable[[], tuple[Callable[..., Tensor], Sequence[Tensor]]]) -> None:
    expected = results(within(torch.enable_grad), *make())
    for name, call in SURROUNDINGS.items():
        for is_warm in (False, True):
            function, sources = make()
            if is_warm:
                results(within(torch.enable_grad), function, sources)
            actual = results(call, function, sources)
            for y, expected_value in zip(actual, expected, strict=True):
                torch.testing.assert_close(y, expected_value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")  # noqa: B023


def training_function(subject: Subject) -> tuple[Callable[..., Tensor], Sequence[Tensor]]:
    """Return a layer in training as a function of x, and its arguments."""
    layer = copy.deepcopy(subject.build()).float().train()
    memory = None
    if layer.d_memory is not None:
        memory = Memory(random(len(MASK), 3, layer.d_memory).float())

    def function(x: Tensor) -> Tensor:
        state = None if memory is None else layer.init_state(len(x), memory)
        return layer(x, state, mask=MASK)[0].masked_fill(~MASK.unsqueeze(-1), 0.0)

    return function, [random(*MASK.shape, layer.d_in).float()]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(
            subject, id=subject.name.replace(" ", "_"),
            marks=[] if subject.name in QUICK else pytest.mark.slow,
        )
        for subject in SUBJECTS
    ],
)  # fmt: skip
def test_layers_give_equal_numbers_in_any_surroundings(subject: Subject) -> None:
    check(lambda: training_function(subject))


def f(*shape: int, seed: int = 1) -> Tensor:
    return random(*shape, seed=seed).float()


TARGETS, TAGS = torch.arange(40) % 9, torch.arange(24).view(4, 6) % 3
CRF = LinearChainCRF(3)
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "weights of attention": (lambda x: attention_weights(x, None, 0.5), [f(3, 2, 70, 90)]),
    "loss": (
        lambda h, w, b: linear_cross_entropy(h, w, b, TARGETS, label_smoothing=0.1)[None],
        [f(40, 5), f(9, 5), f(9)],
    ),
    "uniform": (lambda x: x * uniform((4, 3)), [f(4, 3)]),
    "normal": (lambda x: x * normal((4, 3)), [f(4, 3)]),
    "crf": (lambda x: CRF.nats(x, TAGS), [f(4, 6, 3)]),
}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_equal_numbers_in_any_surroundings(name: str) -> None:
    check(lambda: FUNCTIONS[name])


@pytest.mark.parametrize(
    "planted", [lambda x: x * torch.full((3,), 1 / 3).to(x), lambda x: x * torch.zeros(3, dtype=x.dtype).to("cpu")]
)
def test_a_buffer_of_the_default_type_is_detected(planted: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises((AssertionError, NotImplementedError)):
        check(lambda: (planted, [f(1, 3)]))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_trace_under_the_hooks_of_a_checkpoint_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plant traces a layer at its first call, under the hooks of its caller."""
    monkeypatch.setattr("torch.autograd.graph.saved_tensors_hooks", lambda *_: nullcontext())
    monkeypatch.setitem(SURROUNDINGS, "saved copies", within(torch.enable_grad))
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        check(lambda: training_function(Subject("lstm", lambda: LSTM(3, 4))))
