"""The density of frames agrees with torch's distributions, closed forms, and importance sampling."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, distributions, nn

from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.frame_prediction.model import (
    FramePredictor,
    FramePredictorParts,
    PlainReader,
    StochasticReader,
    VariationalReader,
)
from ensue.extensions.frames.recipe import FrameFeatureSpecification, LatentSpecification, MixtureHeadSpecification
from ensue.extensions.frames.tasks.model import Frames, FrameStatistics
from ensue.models.specification import Encoder, LSTMEncoder, NoEncoder
from ensue.nn import LSTM, Bidirectional, MixtureHead
from ensue.nn.gaussian import Gaussian

pytestmark = pytest.mark.usefixtures("in_torch_operations")  # compiled cells have tests of their own
KINDS = ("none", "storn", "vrnn")
D, D_LATENT, T = 2, 3, 5


def predictor(kind: str, *, encoder: Encoder | NoEncoder | None = None, components: int = 2) -> FramePredictor:
    """Return a model with large random weights, in float64 and in evaluation mode."""
    torch.manual_seed(3)
    tables: Any = SimpleNamespace(
        features=FrameFeatureSpecification(), encoder=encoder or LSTMEncoder(kind="lstm", d_model=4),
        latent=LatentSpecification(kind=kind, size=D_LATENT, d_hidden=6),  # type: ignore[arg-type]
        head=MixtureHeadSpecification(components=components),
    )  # fmt: skip
    statistics = FrameStatistics(Shape(D, 0.0, (), False, "x"), (5.0, -1.0), (2.0, 0.25))
    model = FramePredictorParts(statistics).build(tables).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def series(*lengths: int) -> Frames:
    """Return rows of these lengths, with the mean and the deviation of the model's statistics."""
    generator = torch.Generator().manual_seed(4)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    values = torch.randn(*mask.shape, D, generator=generator, dtype=torch.float64)
    values = values * torch.tensor([2.0, 0.25]) + torch.tensor([5.0, -1.0])
    return Frames(values.masked_fill(~mask.unsqueeze(-1), 0.0), None if bool(mask.all()) else mask)


def draw_batch_noise(model: FramePredictor, frames: Frames, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*frames.shape, model.d_latent, generator=generator, dtype=torch.float64)


def test_a_mixture_equals_that_of_torch() -> None:
    torch.manual_seed(0)
    head = MixtureHead(4, D, components=3).double()
    h, x = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 4, D, dtype=torch.float64)
    mixture = head(h)
    components = distributions.Independent(
        distributions.Normal(mixture.components.mean, mixture.components.log_deviation.exp()), 1
    )
    theirs = distributions.MixtureSameFamily(distributions.Categorical(logits=mixture.log_weights), components)
    torch.testing.assert_close(mixture.nats(x), -theirs.log_prob(x))
    mean, deviation = mixture.moments()
    torch.testing.assert_close(mean, theirs.mean)
    torch.testing.assert_close(deviation, theirs.stddev)
    assert bool((deviation > 0.01).all())
    drawn = head(h[:1, :1].expand(4000, 1, 4)).draw(generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn.mean((0, 1)), mean[0, 0], atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.std((0, 1)), deviation[0, 0], atol=0.1, rtol=0)
    heaviest = mixture.log_weights[0, 0].argmax()
    torch.testing.assert_close(mixture.draw(temperature=0)[0, 0], mixture.components.mean[0, 0, heaviest])


def test_missing_features_are_marginalized() -> None:
    """The density of the other features is that of the mixture without the missing feature."""
    head = MixtureHead(4, D, components=3)
    mixture = head(torch.randn(6, 4))
    x, observed = torch.randn(6, D), torch.tensor([True, False]).expand(6, D)
    marginal = mixture._replace(components=Gaussian(*(part[..., :1] for part in mixture.components)))
    torch.testing.assert_close(mixture.nats(x, observed), marginal.nats(x[:, :1]))
    assert not mixture.nats(x, torch.zeros(6, D, dtype=torch.bool)).abs().gt(1e-5).any()


def test_invalid_sizes_of_a_head_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        MixtureHead(4, 2, components=0)
    with pytest.raises(ValueError, match="MixtureHead expects h"):
        MixtureHead(4, 2)(torch.zeros(3, 5))


def test_nats_are_those_of_unnormalized_frames() -> None:
    """Torch transforms the density of normalized features to that of the frames."""
    model, frames = predictor("none"), series(T)
    x = model.features.normalized(frames.values)
    read = model.reader(x, x, x.new_zeros(1, T, 0))
    density = model.head(read.decoded)
    normalized = distributions.MixtureSameFamily(
        distributions.Categorical(logits=density.log_weights),
        distributions.Independent(
            distributions.Normal(density.components.mean, density.components.log_deviation.exp()), 1
        ),
    )
    shift, scale = model.features.mean, model.features.deviation
    frame_distribution = distributions.TransformedDistribution(
        normalized, distributions.AffineTransform(shift, scale, event_dim=1)
    )
    torch.testing.assert_close(
        model(frames, draw_batch_noise(model, frames)).nats, -frame_distribution.log_prob(frames.values)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_a_batch_has_the_scores_of_the_row_alone(kind: str) -> None:
    model, frames = predictor(kind), series(T, 2, 4)
    noise = draw_batch_noise(model, frames)
    together = model(frames, noise)
    for row, length in enumerate((T, 2, 4)):
        alone = model(Frames(frames.values[row : row + 1, :length], None), noise[row : row + 1, :length])
        for of_batch, of_row in zip(together, alone, strict=True):
            torch.testing.assert_close(of_batch[row, :length], of_row[0])
            assert not of_batch[row, length:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_frame_by_frame_equal_those_of_the_whole_series(kind: str) -> None:
    """With the latent variables of the posterior, also after a prompt."""
    model, frames = predictor(kind), series(T, T)
    x, noise = model.features.normalized(frames.values), draw_batch_noise(model, frames)
    read = model.reader(x, x, noise)
    latent_noise = noise
    if isinstance(model.reader, StochasticReader):
        latent_noise = Gaussian.of(model.reader.posterior(model.reader.recognition(x)[0])).reparameterize(noise)
    if isinstance(model.reader, VariationalReader):
        layer = model.reader.layer
        posterior, prior = layer.gaussians(layer(torch.cat((x, noise), dim=-1))[0])
        latent_noise = (posterior.reparameterize(noise) - prior.mean) * (-prior.log_deviation).exp()
    for begin in (0, 2):
        state = model.reader.init_state(2)
        if begin:
            state = model.read(Frames(frames.values[:, :begin], None), noise[:, :begin])
        for t in range(begin, T):
            density, opened = model.next(latent_noise[:, t], state)
            expected = model.head(read.decoded[:, t])
            torch.testing.assert_close(density.components, expected.components)
            state = model.reader.close(x[:, t], opened)


def test_the_bound_and_importance_sampling_agree_with_a_closed_form() -> None:
    """Without layers a frame is normal, with the variance of the latent variables added to its own."""
    model = predictor("storn", encoder=NoEncoder(kind="none"), components=1)
    frames = series(1)
    with torch.no_grad():
        head = model.head.projection.weight
        head[1 + D :] = 0.0  # the deviations depend on nothing
        model.reader.posterior.weight.mul_(0.1)  # near the prior, so that importance sampling converges
        model.reader.posterior.bias.copy_(torch.tensor([0.0] * D_LATENT + [0.5] * D_LATENT))
    x = model.features.normalized(frames.values)
    by_latent = head[1 : 1 + D, D:]  # before the first frame there are zeros
    bias = model.head.projection.bias
    deviation = nn.functional.softplus(bias[1 + D :]) + model.head.least
    covariance = by_latent @ by_latent.T + torch.diag(deviation.square())
    right = torch.distributions.MultivariateNormal(bias[1 : 1 + D], covariance).log_prob(x).sum()
    exact = -right + model.features.deviation.log().sum()
    assert_bounded(model, frames, exact=exact.item())


@pytest.mark.parametrize("kind", ["storn", "vrnn"])
def test_importance_sampling_is_below_the_bound(kind: str) -> None:
    assert_bounded(predictor(kind), series(3))


@torch.no_grad()
def assert_bounded(model: FramePredictor, frames: Frames, *, exact: float | None = None) -> None:
    """The mean bound of 1,000 draws is not below the importance-weighted nats, which equal the exact nats, if known."""
    draws = 1000
    many = Frames(frames.values.expand(draws, -1, -1), None)
    cost = model(many, draw_batch_noise(model, many))
    bounds = (cost.nats + cost.divergence).sum(1)
    estimates = -(cost.nats + cost.ratio).sum(1)
    importance_nats = float(math.log(draws) - estimates.logsumexp(0))
    noise = 4 * float(bounds.std()) / draws**0.5
    assert float(bounds.mean()) > importance_nats - noise
    assert float(-estimates.mean()) == pytest.approx(float(bounds.mean()), abs=6 * float(estimates.std()) / draws**0.5)
    if exact is not None:
        assert importance_nats == pytest.approx(exact, abs=0.3)
        assert float(bounds.mean()) > exact + 0.3


def test_bidirectional_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="expected causal layers"):
        PlainReader(Bidirectional(LSTM(2, 3), LSTM(2, 3)))
