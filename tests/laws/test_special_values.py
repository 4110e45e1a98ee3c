"""NaN and infinity at one position of a row: every layer gives the numbers of `fold`, and other rows stay unchanged."""

import pytest
import torch
from torch import Tensor

from ensue.engine import Execution, executing
from ensue.nn.recurrent.clockwork import ClockworkUnits
from ensue.nn.recurrent.gru import ElmanState
from ensue.testing.laws import Subject, float_leaves, inputs, start
from ensue.types import State

from .table import CASES, SUBJECTS

NUMBERS = (float("nan"), float("inf"), -float("inf"), -0.0, 1e-310)
INDEX = (1, 1, 0)


def results(subject: Subject, x: Tensor, execution: Execution) -> list[Tensor]:
    with executing(execution), torch.no_grad():
        y, final = subject.layer(x, start(subject.layer))
    return [y, *float_leaves(final)]


def wrong_numbers(subject: Subject, execution: Execution) -> list[float]:
    """Return the special numbers at which a layer differs from `fold`, or other rows change."""
    bad, clean = [], results(subject, inputs(subject.layer).detach(), execution)
    others = [row for row in range(len(clean[0])) if row != INDEX[0]]
    for number in NUMBERS:
        x = inputs(subject.layer).detach().clone()
        x[INDEX] = number
        values, expected = results(subject, x, execution), results(subject, x, "fold")
        pairs = [*zip(values, expected, strict=True)]
        pairs += [(a[others], b[others]) for a, b in zip(values, clean, strict=True) if len(a) == len(clean[0])]
        if not all(torch.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True) for a, b in pairs):
            bad.append(number)
    return bad


@pytest.mark.sampled(4, "clockwork")
@pytest.mark.parametrize("subject", CASES)
def test_special_values_give_the_numbers_of_fold(subject: Subject) -> None:
    subject.layer.eval()
    assert wrong_numbers(subject, "plain") == []
    assert wrong_numbers(subject, "compiled") == []


def test_a_choice_by_products_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plant multiplies by 0, and 0 times NaN is NaN."""

    def step(self: ClockworkUnits, x_t: Tensor, state: State = None) -> tuple[Tensor, ElmanState]:
        u, updates = x_t.chunk(2, dim=-1)
        (h,) = state or self.init_state(len(x_t))
        h = updates * torch.tanh(u + h @ self.weight_hidden.t()) + (1 - updates) * h
        return h, ElmanState(h)

    monkeypatch.setattr(ClockworkUnits, "step", step)
    (subject,) = (Subject(subject.name, subject.make) for subject in SUBJECTS if subject.name == "clockwork")
    assert wrong_numbers(subject, "plain")[:1] != []
