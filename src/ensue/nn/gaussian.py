"""Normal distributions of real vectors with independent features, and a head for a mixture of them."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.border import expect
from ensue.nn.draws import normal

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Gaussian(NamedTuple):
    """Normal distributions `N(μ, diag(σ²))`, one for each row (dimension 0) and position, as μ and log σ."""

    mean: Float[Tensor, "*shape d"]
    log_deviation: Float[Tensor, "*shape d"]

    @classmethod
    def of(cls, parameters: Float[Tensor, "*shape d2"], *, least: float = 1e-4) -> "Gaussian":
        """Return the distributions with μ = first half and σ = softplus(second half) + `least`, in float32 or more."""
        if parameters.dtype in (torch.bfloat16, torch.float16):  # rounding would change KL divergences by a percent
            parameters = parameters.float()
        mean, deviation = parameters.chunk(2, dim=-1)
        return cls(mean, (F.softplus(deviation) + least).log())

    @classmethod
    def standard(cls, like: Float[Tensor, "*shape d"]) -> "Gaussian":
        """Return N(0, 1) in the shape of `like`."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def reparameterize(self, noise: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """Return `μ + σ ε` for the noise ε, differentiable in μ and σ (Kingma & Welling 2014)."""
        return self.mean + self.log_deviation.exp() * noise

    def draw(self) -> Float[Tensor, "*shape d"]:
        """Draw vectors. The noise of a row does not depend on how the batch is split among processes."""
        return self.reparameterize(normal(self.mean.shape, dtype=self.mean.dtype, device=self.mean.device))

    def nats(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
        """Return the surprisal `-log p(x)` in nats, summed over features; negative where the density exceeds 1."""
        distance = (x - self.mean) * (-self.log_deviation).exp()
        return (0.5 * distance.square() + self.log_deviation + HALF_LOG_TAU).sum(-1)

    def ratio(self, x: Float[Tensor, "*shape d"], other: "Gaussian | None" = None) -> Float[Tensor, "*shape"]:
        """Return `log p(x) - log p'(x)` in nats, where p' is `other`, by default N(0, 1)."""
        return (Gaussian.standard(x) if other is None else other).nats(x) - self.nats(x)

    def divergence(self, other: "Gaussian | None" = None) -> Float[Tensor, "*shape"]:
        """Return `KL(self ‖ other)` in nats, `Σ log σ'/σ + (σ² + (μ - μ')²) / 2σ'² - 1/2`; default: KL to N(0, 1)."""
        mean, log_deviation = self
        if other is not None:
            mean = (mean - other.mean) * (-other.log_deviation).exp()
            log_deviation = log_deviation - other.log_deviation
        return (0.5 * (mean.square() + (2 * log_deviation).exp() - 1) - log_deviation).sum(-1)


class Mixture(NamedTuple):
    """Mixtures `Σ_k π_k N(μ_k, diag(σ_k²))`, one for each row and position, with log π and components (..., K, d)."""

    log_weights: Float[Tensor, "*shape K"]
    components: Gaussian

    def nats(
        self, x: Float[Tensor, "*shape d"], observed: Bool[Tensor, "*shape d"] | None = None
    ) -> Float[Tensor, "*shape"]:
        """Return `-log p(x)` in nats of the `observed` features (None: all). Missing features are marginalized."""
        mean, log_deviation = self.components
        distance = (x.unsqueeze(-2) - mean) * (-log_deviation).exp()
        nats = 0.5 * distance.square() + log_deviation + HALF_LOG_TAU
        if observed is not None:
            nats = nats.masked_fill(~observed.unsqueeze(-2), 0.0)
        return -torch.logsumexp(self.log_weights - nats.sum(-1), dim=-1)

    def moments(self) -> tuple[Float[Tensor, "*shape d"], Float[Tensor, "*shape d"]]:
        """Return the mean and the standard deviation of each feature, (..., d)."""
        weights, (means, log_deviations) = self.log_weights.exp().unsqueeze(-1), self.components
        mean = (weights * means).sum(-2)
        variance = (weights * ((2 * log_deviations).exp() + (means - mean.unsqueeze(-2)).square())).sum(-2)
        return mean, variance.sqrt()

    def draw(self, *, temperature: float = 1.0, generator: torch.Generator | None = None) -> Float[Tensor, "*shape d"]:
        """Draw vectors, with each σ multiplied by `temperature`; at 0, return the means of the likeliest components."""
        mean, log_deviation = self.components
        if temperature == 0:
            indices = self.log_weights.argmax(-1)
        else:
            weights = self.log_weights.exp()
            indices = torch.multinomial(weights.flatten(0, -2), 1, generator=generator).view(weights.shape[:-1])
        index = indices[..., None, None].expand(*indices.shape, 1, mean.shape[-1])
        mean, log_deviation = (tensor.gather(-2, index).squeeze(-2) for tensor in (mean, log_deviation))
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + temperature * log_deviation.exp() * noise


class MixtureHead(nn.Module):
    """A mixture density head, from features h to a `Mixture` of K diagonal Gaussians (Bishop 1994; Graves 2013):

        π = softmax(W_π h + b_π)        μ_k = W_k h + b_k        σ_k = softplus(V_k h + c_k) + least

    `least` is the smallest standard deviation: without it, the density of a constant feature is unbounded. Raises
    ValueError if a size is below 1, or `least` is not above 0.
    """

    def __init__(self, d_in: int, d_x: int, *, components: int = 1, least: float = 1e-2) -> None:
        super().__init__()
        if min(d_in, d_x, components) < 1 or not least > 0:
            raise ValueError(f"sizes and `least` must be positive; found {d_in}, {d_x}, {components} and {least}")
        self.d_in, self.d_x, self.num_components, self.least = d_in, d_x, components, least
        self.projection = nn.Linear(d_in, components * (2 * d_x + 1))

    def forward(self, h: Float[Tensor, "*shape d_in"]) -> Mixture:
        """Return the distribution of x for each h. Raises ValueError for a wrong size, TypeError for a wrong type."""
        expect("MixtureHead", "h", h, (..., self.d_in), self.projection.weight.dtype, like=self.projection.weight)
        with torch.autocast(h.device.type, enabled=False):  # bfloat16 has 8 significant bits, too few here
            return self.build_mixture(self.projection(h.to(self.projection.weight.dtype)))

    def build_mixture(self, projected: Float[Tensor, "*shape d_projected"]) -> Mixture:
        """Return the distribution with the parameters `projected`, the output of `projection`."""
        size = self.num_components * self.d_x
        weights, *parameters = torch.split(projected, [self.num_components, size, size], dim=-1)
        shape = (*projected.shape[:-1], self.num_components, self.d_x)
        mean, deviation = (tensor.view(shape) for tensor in parameters)
        return Mixture(weights.log_softmax(-1), Gaussian(mean, (F.softplus(deviation) + self.least).log()))

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_x={self.d_x}, components={self.num_components}, least={self.least}"
