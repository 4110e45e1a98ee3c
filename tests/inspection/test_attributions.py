"""Gradients equal difference quotients, and integrated gradients add up to the explained difference."""

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
def test_gradients_equal_difference_quotients(name: str) -> None:
    """The gradients are by a feature at each position, and by a unit of each state."""
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
    """Return the difference quotient by unit 2 at position t."""
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


def test_shares_of_a_line_and_a_product_are_exact() -> None:
    x, w = torch.randn(1, 2, D, dtype=torch.float64), torch.randn(2, D, dtype=torch.float64)
    attribution = integrated_gradients(lambda x: (x * w).sum((1, 2)) + 7, x, points=24, rows=5)
    assert attribution.shares == pytest.approx((x[0] * w).sum(-1).numpy())
    assert (attribution.value, attribution.baseline) == pytest.approx((float((x[0] * w).sum()) + 7, 7))
    attribution = integrated_gradients(lambda x: x[:, 0, 0] * x[:, 1, 2], x, points=24, rows=5)  # ∫ α x dα, twice
    assert attribution.shares == pytest.approx([float(x[0, 0, 0] * x[0, 1, 2]) / 2] * 2)
    assert attribution.is_exact
    assert integrated_gradients(lambda x: torch.ones(len(x)), x, points=24, rows=5).shares.tolist() == [0, 0]


@pytest.mark.parametrize("rows", some_slow([1, 100], 100))
def test_shares_add_up_and_equal_those_of_many_small_steps(rows: int) -> None:
    layer = rough("lstms")
    x = 3 * torch.randn(1, T, D, dtype=torch.float64)
    attribution = integrated_gradients(lambda x: output(layer(x)[0]), x, points=400, rows=rows)
    ends = output(layer(torch.cat((x, 0 * x)))[0]).detach()
    assert (attribution.value, attribution.baseline) == pytest.approx(ends.tolist())
    assert attribution.is_exact
    assert float(attribution.shares.sum()) == pytest.approx(float(ends[0] - ends[1]), abs=attribution.error + 1e-9)
    middles = ((torch.arange(2000, dtype=torch.float64) + 0.5) / 2000).view(-1, 1, 1) * x
    middles.requires_grad_()
    (slopes,) = torch.autograd.grad(output(layer(middles)[0]).sum(), middles)
    assert attribution.shares == pytest.approx((slopes.mean(0) * x[0]).sum(-1).numpy(), abs=0.02)


def test_the_interval_of_the_largest_error_is_refined_first() -> None:
    def output(x: Tensor) -> Tensor:  # a small error in one interval, and a large one in another
        return (200 * (x[:, 0, 0] - 0.9)).sigmoid() + 0.2 * (200 * (x[:, 0, 0] - 0.2)).sigmoid()

    x = torch.ones(1, 1, 1, dtype=torch.float64)
    errors = [integrated_gradients(output, x, points=points, rows=100).error for points in (24, 30)]
    assert errors[1] < 0.7 * errors[0]


def test_points_are_added_at_a_steep_step() -> None:
    """The output has a step near the end of the line, between the first points."""

    def steep(x: Tensor) -> Tensor:
        return torch.sigmoid(2000 * (x[:, 0, 0] - 0.93))

    x = torch.ones(1, 1, 1, dtype=torch.float64)
    coarse, fine = (integrated_gradients(steep, x, points=points, rows=64) for points in (24, 200))
    assert not coarse.is_exact
    assert fine.is_exact
    assert fine.shares == pytest.approx([1.0], abs=0.02)


@pytest.mark.parametrize("name", some_slow(MODELS, "transformer"))
def test_a_token_is_explained_by_the_tokens_before_it(name: str) -> None:
    pipeline = model_of(name)
    model = pipeline.model.eval()
    view = pipeline.inspect("The sea was calm. Nobody spoke", at=9, token="s").view
    explanation, inputs = view.explanation, [pipeline.tokenizer.start_id, *view.ids[:8].tolist()]
    (target,) = pipeline.tokenizer.encode("s").tolist()
    assert (explanation.place, explanation.token) == (8, target)
    with torch.no_grad():
        p = model(torch.tensor([inputs]))[0][0, -1].log_softmax(-1)
        _, state = model.layers(model.features(torch.tensor([inputs[: 9 - len(explanation.integrated.shares)]])))
        blank = torch.zeros(1, len(explanation.integrated.shares), model.features.d_out)
        blanked = model.head(model.layers(blank, state)[0])[0, -1].log_softmax(-1)
    assert explanation.integrated.value == pytest.approx(float(p[target]), abs=1e-4)
    assert explanation.integrated.baseline == pytest.approx(float(blanked[target]), abs=1e-4)
    added = explanation.integrated.value - explanation.integrated.baseline
    assert float(explanation.integrated.shares.sum()) == pytest.approx(added, abs=explanation.integrated.error + 1e-4)
    assert len(explanation.norms) == len(explanation.products) == 8
    assert all(units.values.shape[0] == 8 for units in explanation.states)
    kinds = {units.kind.rpartition(" ")[2] for units in view.units}
    assert bool(explanation.states) == bool(kinds & {"hidden", "neurons"})


@pytest.mark.slow
def test_the_next_token_is_explained() -> None:
    view = model_of("transformer").inspect("The sea was calm", at=0).view
    assert view.explanation.place == view.length == 16
    assert view.explanation.token == view.predictions.ids[-1, 0]
    assert len(view.explanation.norms) == 6, "the window of 10 that predicts it begins at 10"


@pytest.mark.slow
def test_the_nearest_tokens_of_a_long_text_explain() -> None:
    pipeline = model_of("gru")
    inputs = np.concatenate(([pipeline.tokenizer.start_id], np.tile(pipeline.tokenizer.encode("sea "), 200)))
    pipeline.model.eval()
    explanation = explain(pipeline.model, inputs, 700, 3)
    assert explanation is not None
    assert len(explanation.norms) == MAX_EXPLAINED_TOKENS
    assert isinstance(explanation.integrated, Attribution)
    assert explain(pipeline.model, inputs, 0, 3) is None
