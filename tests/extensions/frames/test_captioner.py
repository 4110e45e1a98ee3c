"""Captioners: the doubly stochastic loss equals a direct sum, and hard attention has the exact mean gradient."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.extensions.frames.captioning.model import (
    Captioner,
    CaptionerParts,
    HardAttentionLoss,
    doubly_stochastic_loss,
)
from ensue.extensions.frames.recipe import CaptionAttention, FrameFeatureSpecification, GridSpecification
from ensue.models.specification import (
    ONE_WAY,
    ElmanEncoder,
    LSTMEncoder,
    NoEncoder,
    PairTokens,
    TextHead,
    TransformerEncoder,
)
from ensue.nn import AttentionBefore, HardAttention, ImageGrid, InputFeeding, Transformer
from extensions.frames.small_frames import without_normalization

D, V = 2, 5
NO_GRID = GridSpecification(kind="none")


def captioner(grid: GridSpecification = NO_GRID, width: int = D, decoder: Any = None, **attention: Any) -> Captioner:
    torch.manual_seed(0)
    tables: Any = SimpleNamespace(
        features=FrameFeatureSpecification(), grid=grid, encoder=NoEncoder(kind="none"), directions=ONE_WAY,
        tokens=PairTokens(d_embedding=3), decoder=decoder or ElmanEncoder(kind="elman", d_model=4),
        attention=CaptionAttention(**attention), head=TextHead(),
    )  # fmt: skip
    target: Any = SimpleNamespace(vocabulary_size=V)
    model = CaptionerParts(without_normalization(width), target, rows=6).build(tables).double()
    with torch.no_grad():  # far from the initial weights of training
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


def test_the_doubly_stochastic_loss_equals_a_direct_sum() -> None:
    alpha = torch.rand(2, 3, 4)
    real, mask = torch.tensor([[True] * 4, [True, True, False, False]]), torch.tensor([[True] * 3, [True, True, False]])
    total = 0.0
    for b, places, steps in ((0, 4, 3), (1, 2, 2)):
        for i in range(places):
            total += (1 - sum(float(alpha[b, t, i]) for t in range(steps))) ** 2
    assert float(doubly_stochastic_loss(alpha, real, mask)) == pytest.approx(total, rel=1e-5)


def test_the_loss_is_surprisal_plus_the_doubly_stochastic_loss() -> None:
    model = captioner(doubly_stochastic=0.7)
    frames, targets = torch.randn(2, 3, D).double(), torch.randint(V, (2, 4))
    frame_mask, mask = torch.tensor([[True] * 3, [True, True, False]]), torch.tensor([[True] * 4, [True] * 3 + [False]])
    inputs = targets.roll(1, 1)
    state = model.begin(frames, frame_mask)
    alphas: list[Tensor] = []
    assert isinstance(model.decoder, AttentionBefore)
    model.decoder.attention.weights.register_forward_hook(lambda module, inputs, alpha: alphas.append(alpha))
    loss = model.loss(inputs, targets, state, mask=mask)
    expected = model.nats(inputs, targets, state)[mask].sum()
    attention_weights = torch.cat(alphas[:4], dim=2)[:, 0]
    assert loss.count == 7
    torch.testing.assert_close(loss.total, expected + 0.7 * doubly_stochastic_loss(attention_weights, frame_mask, mask))


@pytest.mark.slow
def test_the_gradient_of_hard_attention_is_exact_in_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the estimates over all draws is the gradient of Σ_s p(s) · nats(s), whatever the baseline."""
    model = captioner(hard=True, expected=0.0, entropy=0.0, doubly_stochastic=0.0)
    frames, targets = torch.randn(1, 3, D).double(), torch.randint(V, (1, 3))
    inputs = targets.roll(1, 1)
    assert model.drawn is not None
    with torch.no_grad():
        model.drawn.slow_baseline.fill_(0.02)
    weights = [parameter for name, parameter in model.named_parameters() if name != "drawn.slow_baseline"]
    path: list[int] = []
    alphas: list[Tensor] = []

    def draw(self: HardAttention, alpha: Tensor) -> Tensor:
        place = path.pop(0)
        path.append(place)  # for the next sequence
        return torch.nn.functional.one_hot(torch.tensor(place), 3).to(alpha).expand(alpha.shape)

    monkeypatch.setattr(HardAttention, "draw", draw)
    (attention,) = (part for part in model.modules() if isinstance(part, HardAttention))
    attention.weights.register_forward_hook(lambda module, inputs, alpha: alphas.append(alpha))
    bound = torch.zeros((), dtype=torch.float64)
    mean = [torch.zeros_like(parameter) for parameter in weights]
    total = 0.0
    for path[:] in product(range(3), repeat=3):
        alphas.clear()
        loss = model.loss(inputs, targets, model.begin(frames))
        probability = torch.stack([alpha.flatten()[place] for alpha, place in zip(alphas, path, strict=True)]).prod()
        estimate = torch.autograd.grad(loss.total, weights, retain_graph=True, allow_unused=True)
        nats = model.nats(inputs, targets, model.begin(frames)).sum()
        torch.testing.assert_close(loss.total, nats)  # the value is without the surrogate
        bound = bound + probability * nats
        mean = [
            mean_gradient if part is None else mean_gradient + probability.detach() * part
            for mean_gradient, part in zip(mean, estimate, strict=True)
        ]
        total += float(probability.detach())
    exact = torch.autograd.grad(bound, weights, allow_unused=True)
    assert total == pytest.approx(1)
    for mean_gradient, part in zip(mean, exact, strict=True):
        torch.testing.assert_close(mean_gradient, torch.zeros_like(mean_gradient) if part is None else part)
    assert any(part is not None and part.abs().max() > 1e-3 for part in exact)


def test_hard_attention_rewards_entropy_and_fits_its_baseline() -> None:
    hard_loss = HardAttentionLoss(entropy=0.3)
    with torch.no_grad():
        hard_loss.slow_baseline.fill_(0.01)
    alpha = torch.rand(2, 3, 4).softmax(2).requires_grad_()
    nats, mask = torch.rand(2, 3), torch.tensor([[True] * 3, [True, False, False]])
    loss = hard_loss(alpha, torch.zeros(2, 3, 4), nats, mask)
    entropy = -sum(p * math.log(p) for row in (*alpha[0].tolist(), alpha[1, 0].tolist()) for p in row)
    error = 0.5 * sum((float(n) - 0.5) ** 2 for n in (*nats[0], nats[1, 0]))
    assert float(loss.detach()) == pytest.approx(-0.3 * entropy + error, rel=1e-5)
    (baseline_gradient,) = torch.autograd.grad(loss, [hard_loss.slow_baseline])
    assert float(baseline_gradient) == pytest.approx(50 * sum(0.5 - float(n) for n in (*nats[0], nats[1, 0])), rel=1e-4)


def test_decoders_of_all_kinds_attend_to_a_grid() -> None:
    grid = GridSpecification(colors=3, channels=[4, 6], halvings=2)
    for decoder, attention, kind in (
        (None, {}, AttentionBefore),
        (LSTMEncoder(kind="lstm", d_model=4), {"before": False, "feeding": True}, InputFeeding),
        (TransformerEncoder(kind="transformer", d_model=4, num_heads=2), {"kind": "scaled-dot"}, Transformer),
    ):
        model = captioner(grid, 24, decoder, **attention)
        assert any(isinstance(part, kind) for part in model.decoder.modules())
        assert isinstance(model.grid, ImageGrid)
        assert model.encode(torch.rand(2, 6, 24).double()).values.shape == (2, 4, 6)
        loss = model.loss(torch.zeros(2, 3).long(), torch.ones(2, 3).long(), model.begin(torch.rand(2, 6, 24).double()))
        assert loss.total.isfinite()
        assert loss.count == 6


def test_contradictory_specifications_are_refused() -> None:
    with pytest.raises(ValueError, match=r"attention\.hard needs"):
        CaptionAttention(hard=True, kind="dot")
    with pytest.raises(ValueError, match=r"attention\.before and attention\.feeding"):
        CaptionAttention(feeding=True)
    with pytest.raises(ValueError, match="has no state that can be initialized"):
        captioner(decoder=NoEncoder(kind="none"))
