"""Why a token was expected: what each token before it, and each state, gives to its log-probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.attributions import Integrated, gradients_of, integrated_gradients, rows_together
from ensue.inspection.units import Units
from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of
from ensue.tasks.texts.scoring import scored_windows
from ensue.types import State, select_rows

MOST_EXPLAINED = 512
"""The most tokens before a place by which gradients are taken."""
INTEGRATED = (64, 32, 16, 8)
"""The numbers of tokens to integrate over: the first one for which the integral is exact is taken, or the last."""
POSITIONS = 4_096
"""About the most positions that are read for an integral."""


@dataclass(frozen=True)
class Explanation:
    """Of ln P(`token`) at a `place` of the text, counted from 0, by the N tokens before it, of which the nearest M are
    integrated over.

    `norms` (N,) are the lengths of the gradients by their features, `products` (N,) those of gradient and features.
    `integrated` has M shares, with zeros in place of these tokens as the baseline. `states` (N, d) are the gradients
    by the states behind each token. What was read before these tokens stays as it is.
    """

    place: int
    token: int
    norms: NDArray[np.float64]
    products: NDArray[np.float64]
    states: list[Units]
    integrated: Integrated


def explain(model: LanguageModel, inputs: NDArray[np.int64], place: int, token: int) -> Explanation | None:
    """The explanation of a place; None if no token is read before it. `inputs` are the start symbol and the text.

    The model should be in evaluation mode.
    """
    begin = next(begin for begin, _, end in scored_windows(len(inputs), model.context) if place < end)
    near = min(MOST_EXPLAINED, place - begin)
    if not near:
        return None
    with torch.no_grad():
        x = model.features(torch.from_numpy(inputs[None, begin : place + 1].astype(np.int64)).to(device_of(model)))
    target = torch.tensor([token], device=x.device)

    def log_probability(h: Tensor) -> Tensor:
        return -model.head.nats(h[:, -1], target.expand(len(h)))

    def integrated(last: int) -> Integrated:
        before = _state(model, x[:, :-last])

        def output(x: Tensor) -> Tensor:
            state = select_rows(before, torch.zeros(len(x), dtype=torch.int64, device=x.device))
            return log_probability(model.layers(x, state)[0])

        rows = rows_together(model.layers, last)
        return integrated_gradients(output, x[:, -last:], points=max(48, POSITIONS // last), rows=rows)

    gradients = gradients_of(model.layers, x[:, -near:], log_probability, _state(model, x[:, :-near]))
    products = (gradients.inputs * x[0, -near:].double().cpu().numpy()).sum(1)
    for last in dict.fromkeys(min(near, most) for most in INTEGRATED):
        found = integrated(last)
        if found.is_exact:
            break
    norms = np.linalg.norm(gradients.inputs, axis=1)
    return Explanation(place, token, norms, products, gradients.states, found)


def _state(model: LanguageModel, x: Tensor) -> State:
    """The state after features (1, T, d), without their gradients."""
    with torch.no_grad():
        return model.layers(x)[1]
