"""A painter: its bound agrees with an integral and with importance sampling, and rows are independent."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.extensions.frames.drawing.model import DrawingParts, ImageSize, Painter
from ensue.extensions.frames.recipe import CanvasSpecification
from ensue.models.specification import ElmanEncoder, LSTMEncoder


def painter(*, glimpses: int, d_latent: int = 1, attention: bool = True, size: ImageSize | None = None) -> Painter:
    """Return a painter with weights so large that its posterior is far from its prior."""
    torch.manual_seed(0)
    canvas = CanvasSpecification(glimpses=glimpses, d_latent=d_latent, attention=attention, read=2, write=2)
    encoder, decoder = LSTMEncoder(kind="lstm", d_model=4), ElmanEncoder(kind="elman", d_model=4)
    tables: Any = SimpleNamespace(canvas=canvas, encoder=encoder, decoder=decoder)
    model = DrawingParts(size or ImageSize(3, 2)).build(tables).double().eval()
    with torch.no_grad():
        for parameter in (*model.posterior.parameters(), *model.writer.parameters()):
            parameter.mul_(1.5)
    return model


def image() -> Tensor:
    return torch.tensor([[1, 0], [1, 1], [0, 0]], dtype=torch.float64).unsqueeze(0)


def exact(model: Painter, x: Tensor) -> float:
    """Return `-log p(x)` of a painter with one latent number, by the sum over a fine grid."""
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    logits = model.canvases(z.view(-1, 1, 1))[:, -1].logit()
    log_p = -F.binary_cross_entropy_with_logits(logits, x.expand_as(logits), reduction="none").sum((1, 2))
    log_prior = -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
    return -float((log_p + log_prior).logsumexp(0) + math.log(16 / 4000))


@torch.no_grad()
@pytest.mark.parametrize("attention", [True, False])
def test_the_bound_and_importance_sampling_agree_with_an_integral(attention: bool) -> None:
    model, count = painter(glimpses=1, attention=attention), 4000
    noise = torch.randn(count, 1, 1, dtype=torch.float64)
    bound = model(image().expand(count, -1, -1), noise)
    right, estimated = exact(model, image()), math.log(count) - float(bound.weight.logsumexp(0))
    weights = bound.weight.exp()
    assert estimated == pytest.approx(right, abs=float(4 * weights.std() / weights.mean()) / math.sqrt(count))
    assert float(bound.total.mean()) > right + 0.01
    # the two forms of the bound: with the divergence in closed form, and as the mean of log Q(z | x) / p(x, z)
    error = 4 * float(bound.weight.std()) / math.sqrt(count)
    assert float(bound.total.mean()) == pytest.approx(-float(bound.weight.mean()), abs=error)


@torch.no_grad()
@pytest.mark.parametrize("attention", [True, False])
def test_importance_sampling_is_never_above_the_bound(attention: bool) -> None:
    model, count = painter(glimpses=3, d_latent=2, attention=attention), 1000
    bound = model(image().expand(count, -1, -1), torch.randn(count, 3, 2, dtype=torch.float64))
    estimated = math.log(count) - float(bound.weight.logsumexp(0))
    assert estimated < float(bound.total.mean()) + 2 * float(bound.total.std()) / math.sqrt(count)


def test_rows_are_independent_and_the_canvas_depends_only_on_z() -> None:
    model = painter(glimpses=3, d_latent=2, size=ImageSize(4, 3, 2))
    x, noise = torch.rand(5, 4, 6, dtype=torch.float64), torch.randn(5, 3, 2, dtype=torch.float64)
    together = model(x, noise)
    for row in range(5):
        alone = model(x[row : row + 1], noise[row : row + 1])
        torch.testing.assert_close(together.total[row : row + 1], alone.total)
    latents: list[Tensor] = []
    step = model.decoder.step
    model.decoder.step = lambda z, state: (latents.append(z), step(z, state))[1]  # type: ignore[assignment,func-returns-value]
    bound = model(x, noise)
    canvas = model.canvases(torch.stack(latents, 1))[:, -1]
    torch.testing.assert_close(bound.reconstruction, F.binary_cross_entropy(canvas, x, reduction="none").sum((1, 2)))


@pytest.mark.slow
def test_the_gradient_of_the_bound_equals_finite_differences() -> None:
    model = painter(glimpses=2, d_latent=2)
    noise = torch.randn(1, 2, 2, dtype=torch.float64)
    weight = model.posterior.weight

    def total(weight: Tensor) -> Tensor:
        cost: Tensor = torch.func.functional_call(model, {"posterior.weight": weight}, (image(), noise)).total
        return cost

    assert torch.autograd.gradcheck(total, (weight.detach().requires_grad_(),))
