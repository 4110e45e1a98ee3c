"""A head for real vectors: a mixture of normal distributions, of which one component is the plain Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.border import expect
from ensue.nn.gaussian import HALF_LOG_TAU, Gaussian


class Mixture(NamedTuple):
    """`Σ_k π_k N(μ_k, diag(σ_k²))` for each row and place: `log_weights` are log π, `components` have K on dim -2."""

    log_weights: Float[Tensor, "*shape K"]
    components: Gaussian

    def nats(
        self, x: Float[Tensor, "*shape d"], observed: Bool[Tensor, "*shape d"] | None = None
    ) -> Float[Tensor, "*shape"]:
        """The surprisal `-log p(x)` in nats. It is that of the `observed` features alone: the others are summed out,
        which leaves of each component what it says of the rest.
        """
        mean, log_deviation = self.components
        distance = (x.unsqueeze(-2) - mean) * (-log_deviation).exp()
        nats = 0.5 * distance.square() + log_deviation + HALF_LOG_TAU
        if observed is not None:
            nats = nats.masked_fill(~observed.unsqueeze(-2), 0.0)
        return -torch.logsumexp(self.log_weights - nats.sum(-1), dim=-1)

    def moments(self) -> tuple[Float[Tensor, "*shape d"], Float[Tensor, "*shape d"]]:
        """The mean and the deviation of each feature."""
        weights, (means, log_deviations) = self.log_weights.exp().unsqueeze(-1), self.components
        mean = (weights * means).sum(-2)
        variance = (weights * ((2 * log_deviations).exp() + (means - mean.unsqueeze(-2)).square())).sum(-2)
        return mean, variance.sqrt()

    def draw(self, *, temperature: float = 1.0, generator: torch.Generator | None = None) -> Float[Tensor, "*shape d"]:
        """A vector of each: a component by its weight, then its normal distribution, whose deviations are multiplied
        by `temperature`. With 0 it is the mean of the component with the greatest weight.
        """
        mean, log_deviation = self.components
        if temperature == 0:
            chosen = self.log_weights.argmax(-1)
        else:
            weights = self.log_weights.exp()
            chosen = torch.multinomial(weights.flatten(0, -2), 1, generator=generator).view(weights.shape[:-1])
        place = chosen[..., None, None].expand(*chosen.shape, 1, mean.shape[-1])
        mean, log_deviation = (part.gather(-2, place).squeeze(-2) for part in (mean, log_deviation))
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return mean + temperature * log_deviation.exp() * noise


class MixtureHead(nn.Module):
    """Features h to the distribution of a vector x, a `Mixture` of K diagonal Gaussians (Bishop 1994; Graves 2013):

        π = softmax(W_π h + b_π)        μ_k = W_k h + b_k        σ_k = softplus(V_k h + c_k) + least

    `least` is the least deviation of a feature: without it, the density of what never changes has no bound. Raises
    `ValueError` for sizes below 1 and a `least` that is not above 0.
    """

    def __init__(self, d_in: int, d_x: int, *, components: int = 1, least: float = 1e-2) -> None:
        super().__init__()
        if min(d_in, d_x, components) < 1 or not least > 0:
            raise ValueError(f"sizes are above 0, and least too; found {d_in}, {d_x}, {components} and {least}")
        self.d_in, self.d_x, self.num_components, self.least = d_in, d_x, components, least
        self.projection = nn.Linear(d_in, components * (2 * d_x + 1))

    def forward(self, h: Float[Tensor, "*shape d_in"]) -> Mixture:
        """The distribution of x behind each h. Raises `ValueError` for a wrong size, `TypeError` for a wrong type."""
        expect("MixtureHead", "h", h, (..., self.d_in), self.projection.weight.dtype, like=self.projection.weight)
        with torch.autocast(h.device.type, enabled=False):  # densities need more than the 8 bits of bfloat16
            return self.of(self.projection(h.to(self.projection.weight.dtype)))

    def of(self, found: Float[Tensor, "*shape d_found"]) -> Mixture:
        """The distribution from what the projection of h is."""
        size = self.num_components * self.d_x
        weights, *parts = torch.split(found, [self.num_components, size, size], dim=-1)
        mean, deviation = (part.view(*found.shape[:-1], self.num_components, self.d_x) for part in parts)
        return Mixture(weights.log_softmax(-1), Gaussian(mean, (F.softplus(deviation) + self.least).log()))

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_x={self.d_x}, components={self.num_components}, least={self.least}"
