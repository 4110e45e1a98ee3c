"""A layer in training that threads share gives each of them what it gives one alone, and keeps its parameters."""

import copy
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.nn import LSTM, Clockwork, SequenceLayer, WeightDrop
from ensue.testing.laws import MASK, Subject, inputs, mask_outputs, start
from ensue.types import State

from .table import CASES, D_OUT, D

pytestmark = pytest.mark.usefixtures("hasty")
THREADS, CALLS = 4, 2


def run(layer: SequenceLayer) -> list[Tensor]:
    """Outputs, outputs of a step, and gradients."""
    x = inputs(layer)
    y, _ = layer(x, start(layer), mask=MASK)
    results = [mask_outputs(y)]
    if layer.is_causal:
        results.append(layer.step(x[:, 0], start(layer))[0])
    total = torch.stack([result.square().sum() for result in results]).sum()
    sources = [x, *layer.parameters()]
    return results + list(torch.autograd.grad(total, sources, allow_unused=True, materialize_grads=True))


def share(layer: SequenceLayer, calls: int = CALLS) -> None:
    """Raises AssertionError, or the error of a thread, where threads disturb each other."""
    layer = copy.deepcopy(layer).train()  # other tests have the layer too, in evaluation
    before, alone, again = dict(layer.named_parameters()), run(layer), run(layer)
    begin = Barrier(THREADS)

    def work(_: int) -> list[list[Tensor]]:
        begin.wait()
        return [run(layer) for _ in range(calls)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = [each for calls in pool.map(work, range(THREADS)) for each in calls]
    after = dict(layer.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is parameter for name, parameter in before.items())
    steady = [place for place, (one, other) in enumerate(zip(alone, again, strict=True)) if torch.equal(one, other)]
    for each in found:
        assert all(torch.equal(each[place], alone[place]) for place in steady)


def often(case: Any) -> Any:
    """Layers that replace weights are always tried, of the others a few."""
    (subject,) = case.values
    replaces = any(isinstance(module, Clockwork | WeightDrop) for module in subject.layer.modules())
    return case if replaces else pytest.param(subject, id=case.id, marks=[*case.marks, pytest.mark.sampled(4)])


@pytest.mark.parametrize("subject", [often(case) for case in CASES])
def test_threads_share_a_layer(subject: Subject) -> None:
    share(subject.layer)


class WithoutLock(WeightDrop):
    """Replaces weights while other threads read them."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        result: tuple[Tensor, State] = torch.func.functional_call(
            self.layer, self._draw_weights(), (x, state), {"mask": mask}
        )
        return result


def test_replaced_weights_are_noticed() -> None:
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        share(WithoutLock(LSTM(D, D_OUT).double(), 0.5), calls=50)
