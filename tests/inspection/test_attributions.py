"""Gradients are difference quotients, and integrated ones add up to what they explain."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.inspection.attributions import Attribution, differentiate, integrated_gradients
from ensue.inspection.units import map_units_to_taps
from ensue.nn import GRU, LSTM, SequenceLayer, Stack, Transformer, Window, replace
from ensue.tasks.language_modeling.page import MAX_EXPLAINED_TOKENS, explain
from inspection.language_models import MODELS, model_of
from training.tiny import some_slow

D, T = 3, 6
LAYERS = {
    "lstms": lambda: Stack([LSTM(D, 4), LSTM(4, 5)]),
    "gru before": lambda: GRU(D, 5, reset="before"),
    "transformer": lambda: Transformer(4, num_heads=2, num_layers=2, positions="rotary", activation="gelu"),
    "window": lambda: Window(D, 5, size=2),
}


def rough(name: str) -> SequenceLayer:
    torch.manual_seed(3)
    layer = LAYERS[name]().double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.7 * torch.randn_like(parameter))
    return layer


def output(y: Tensor) -> Tensor:
    return y[:, -1].sin().sum(-1) + y[:, -2].prod(-1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", some_slow(LAYERS, "lstms", "transformer"))
def test_gradients_are_difference_quotients(name: str) -> None:
    """By a feature at each position; by a unit of each state, which is moved from outside."""
    layer, move = rough(name), 1e-6
    x = torch.randn(1, T, layer.d_in, dtype=torch.float64)
    (of_inputs, of_states), taps = differentiate(layer, x, output), map_units_to_taps(layer)
    assert {units.name for units in of_states} <= set(taps)
    for t in range(T):
        moved = x.clone()
        moved[0, t, 1] += move
        slope = (output(layer(moved)[0]) - output(layer(x)[0])).item() / move
        assert of_inputs[t, 1] == pytest.approx(slope, abs=1e-5)
    for units in of_states:
        for t in (0, T - 2, T - 1):
            assert units.values[t, 2] == pytest.approx(moved_at(layer, x, taps[units.name], t, move), abs=1e-5)


def moved_at(layer: SequenceLayer, x: Tensor, tap: str, t: int, move: float) -> float:
    """The difference quotient by unit 2 at position t."""
    calls = -1

    def change(value: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        moved = value.clone()
        if value.dim() == 3:
            moved[0, t, 2] += move
        elif calls == t:
            moved[0, 2] += move
        return moved

    with replace(layer, {tap: change}):
        y = layer(x)[0]
    return (output(y) - output(layer(x)[0])).item() / move


def test_of_a_line_and_a_product_the_shares_are_known() -> None:
    x, w = torch.randn(1, 2, D, dtype=torch.float64), torch.randn(2, D, dtype=torch.float64)
    found = integrated_gradients(lambda x: (x * w).sum((1, 2)) + 7, x, points=24, rows=5)
    assert found.shares == pytest.approx((x[0] * w).sum(-1).numpy())
    assert (found.value, found.baseline) == pytest.approx((float((x[0] * w).sum()) + 7, 7))
    found = integrated_gradients(lambda x: x[:, 0, 0] * x[:, 1, 2], x, points=24, rows=5)  # ∫ α x dα, twice
    assert found.shares == pytest.approx([float(x[0, 0, 0] * x[0, 1, 2]) / 2] * 2)
    assert found.is_exact
    assert integrated_gradients(lambda x: torch.ones(len(x)), x, points=24, rows=5).shares.tolist() == [0, 0]


@pytest.mark.parametrize("rows", some_slow([1, 100], 100))
def test_shares_add_up_and_are_those_of_many_small_steps(rows: int) -> None:
    layer = rough("lstms")
    x = 3 * torch.randn(1, T, D, dtype=torch.float64)
    found = integrated_gradients(lambda x: output(layer(x)[0]), x, points=400, rows=rows)
    ends = output(layer(torch.cat((x, 0 * x)))[0]).detach()
    assert (found.value, found.baseline) == pytest.approx(ends.tolist())
    assert found.is_exact
    assert float(found.shares.sum()) == pytest.approx(float(ends[0] - ends[1]), abs=found.error + 1e-9)
    middles = ((torch.arange(2000, dtype=torch.float64) + 0.5) / 2000).view(-1, 1, 1) * x
    middles.requires_grad_()
    (slopes,) = torch.autograd.grad(output(layer(middles)[0]).sum(), middles)
    assert found.shares == pytest.approx((slopes.mean(0) * x[0]).sum(-1).numpy(), abs=0.02)


def test_with_few_points_the_worst_interval_is_refined_first() -> None:
    def output(x: Tensor) -> Tensor:  # a small error in one interval, and a large one in another
        return (200 * (x[:, 0, 0] - 0.9)).sigmoid() + 0.2 * (200 * (x[:, 0, 0] - 0.2)).sigmoid()

    x = torch.ones(1, 1, 1, dtype=torch.float64)
    errors = [integrated_gradients(output, x, points=points, rows=100).error for points in (24, 30)]
    assert errors[1] < 0.7 * errors[0]


def test_points_are_taken_where_they_are_missing() -> None:
    """A step of the output near the end of the line, which the first points do not see."""

    def steep(x: Tensor) -> Tensor:
        return torch.sigmoid(2000 * (x[:, 0, 0] - 0.93))

    x = torch.ones(1, 1, 1, dtype=torch.float64)
    few, many = (integrated_gradients(steep, x, points=points, rows=64) for points in (24, 200))
    assert not few.is_exact
    assert many.is_exact
    assert many.shares == pytest.approx([1.0], abs=0.02)


@pytest.mark.parametrize("name", some_slow(MODELS, "transformer"))
def test_a_token_is_explained_by_those_that_the_model_has_read(name: str) -> None:
    pipeline = model_of(name)
    model = pipeline.model.eval()
    view = pipeline.inspect("The sea was calm. Nobody spoke", at=9, token="s").view
    found, inputs = view.explanation, [pipeline.tokenizer.start_id, *view.ids[:8].tolist()]
    (target,) = pipeline.tokenizer.encode("s").tolist()
    assert (found.place, found.token) == (8, target)
    with torch.no_grad():
        p = model(torch.tensor([inputs]))[0][0, -1].log_softmax(-1)
        _, state = model.layers(model.features(torch.tensor([inputs[: 9 - len(found.integrated.shares)]])))
        blank = torch.zeros(1, len(found.integrated.shares), model.features.d_out)
        blanked = model.head(model.layers(blank, state)[0])[0, -1].log_softmax(-1)
    assert found.integrated.value == pytest.approx(float(p[target]), abs=1e-4)
    assert found.integrated.baseline == pytest.approx(float(blanked[target]), abs=1e-4)
    added = found.integrated.value - found.integrated.baseline
    assert float(found.integrated.shares.sum()) == pytest.approx(added, abs=found.integrated.error + 1e-4)
    assert len(found.norms) == len(found.products) == 8
    assert all(units.values.shape[0] == 8 for units in found.states)
    assert bool(found.states) == any(units.kind.rpartition(" ")[2] in ("hidden", "neurons") for units in view.units)


@pytest.mark.slow
def test_what_comes_next_is_explained() -> None:
    view = model_of("transformer").inspect("The sea was calm", at=0).view
    assert view.explanation.place == view.length == 16
    assert view.explanation.token == view.predictions.ids[-1, 0]
    assert len(view.explanation.norms) == 6, "the window of 10 that predicts it begins at 10"


@pytest.mark.slow
def test_of_a_long_text_the_nearest_tokens_are_asked() -> None:
    pipeline = model_of("gru")
    inputs = np.concatenate(([pipeline.tokenizer.start_id], np.tile(pipeline.tokenizer.encode("sea "), 200)))
    pipeline.model.eval()
    found = explain(pipeline.model, inputs, 700, 3)
    assert found is not None
    assert len(found.norms) == MAX_EXPLAINED_TOKENS
    assert isinstance(found.integrated, Attribution)
    assert explain(pipeline.model, inputs, 0, 3) is None
