"""Threads that share a layer in training get the results of a single thread, and do not replace its parameters."""

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
    """Return outputs, outputs of a step, and gradients."""
    x = inputs(layer)
    y, _ = layer(x, start(layer), mask=MASK)
    results = [mask_outputs(y)]
    if layer.is_causal:
        results.append(layer.step(x[:, 0], start(layer))[0])
    total = torch.stack([result.square().sum() for result in results]).sum()
    sources = [x, *layer.parameters()]
    return results + list(torch.autograd.grad(total, sources, allow_unused=True, materialize_grads=True))


def share(layer: SequenceLayer, calls: int = CALLS) -> None:
    """Run a layer in threads. Raise AssertionError, or the error of a thread, if threads disturb each other."""
    layer = copy.deepcopy(layer).train()  # other tests use the layer in evaluation
    before, expected, repeated = dict(layer.named_parameters()), run(layer), run(layer)
    begin = Barrier(THREADS)

    def work(_: int) -> list[list[Tensor]]:
        begin.wait()
        return [run(layer) for _ in range(calls)]

    with ThreadPoolExecutor(THREADS) as pool:
        results_of_threads = [results for calls in pool.map(work, range(THREADS)) for results in calls]
    after = dict(layer.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is parameter for name, parameter in before.items())
    deterministic = [n for n, (a, b) in enumerate(zip(expected, repeated, strict=True)) if torch.equal(a, b)]
    for results in results_of_threads:
        assert all(torch.equal(results[n], expected[n]) for n in deterministic)


def sampled_case(case: Any) -> Any:
    """Return the case, sampled unless its layer replaces weights."""
    (subject,) = case.values
    replaces = any(isinstance(module, Clockwork | WeightDrop) for module in subject.layer.modules())
    return case if replaces else pytest.param(subject, id=case.id, marks=[*case.marks, pytest.mark.sampled(4)])


@pytest.mark.parametrize("subject", [sampled_case(case) for case in CASES])
def test_threads_share_a_layer(subject: Subject) -> None:
    share(subject.layer)


class WithoutLock(WeightDrop):
    """A layer that replaces weights while other threads read them."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        result: tuple[Tensor, State] = torch.func.functional_call(
            self.layer, self._draw_weights(), (x, state), {"mask": mask}
        )
        return result


def test_replaced_weights_are_detected() -> None:
    with pytest.raises((AssertionError, ValueError, RuntimeError)):
        share(WithoutLock(LSTM(D, D_OUT).double(), 0.5), calls=50)
