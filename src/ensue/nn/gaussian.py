"""Normal distributions of real vectors, whose features are independent."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ensue.nn.draws import normal

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Gaussian(NamedTuple):
    """`N(μ, diag(σ²))` for each row and place: `mean` is μ, and `log_deviation` is log σ. Rows are on dim 0."""

    mean: Float[Tensor, "*shape d"]
    log_deviation: Float[Tensor, "*shape d"]

    @classmethod
    def of(cls, parameters: Float[Tensor, "*shape d2"], *, least: float = 1e-4) -> Gaussian:
        """μ is the first half of the parameters, of 2 d, and σ = softplus(the other) + `least`, in float32 at least."""
        if parameters.dtype in (torch.bfloat16, torch.float16):  # which would round a divergence by a percent
            parameters = parameters.float()
        mean, deviation = parameters.chunk(2, dim=-1)
        return cls(mean, (F.softplus(deviation) + least).log())

    @classmethod
    def standard(cls, like: Float[Tensor, "*shape d"]) -> Gaussian:
        """N(0, 1) of that shape."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def at(self, noise: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        """`μ + σ ε` for this noise ε, which lets gradients through (Kingma & Welling 2014)."""
        return self.mean + self.log_deviation.exp() * noise

    def draw(self) -> Float[Tensor, "*shape d"]:
        """`at` of noise from N(0, 1). The draws of a row are those of its batch, whoever works on the row."""
        return self.at(normal(self.mean.shape, dtype=self.mean.dtype, device=self.mean.device))

    def nats(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
        """The surprisal `-log p(x)` in nats, the sum over the features. As p is a density, it may be below 0."""
        distance = (x - self.mean) * (-self.log_deviation).exp()
        return (0.5 * distance.square() + self.log_deviation + HALF_LOG_TAU).sum(-1)

    def ratio(self, x: Float[Tensor, "*shape d"], other: Gaussian | None = None) -> Float[Tensor, "*shape"]:
        """`log p(x) - log p'(x)` in nats, whose mean over x ~ p is `divergence`; None stands for N(0, 1)."""
        return (Gaussian.standard(x) if other is None else other).nats(x) - self.nats(x)

    def divergence(self, other: Gaussian | None = None) -> Float[Tensor, "*shape"]:
        """`KL(self ‖ other)` in nats, `Σ log σ' - log σ + (σ² + (μ - μ')²) / 2σ'² - 1/2`; None stands for N(0, 1)."""
        mean, log_deviation = self
        if other is not None:
            mean = (mean - other.mean) * (-other.log_deviation).exp()
            log_deviation = log_deviation - other.log_deviation
        return (0.5 * (mean.square() + (2 * log_deviation).exp() - 1) - log_deviation).sum(-1)
