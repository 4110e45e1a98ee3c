"""Mixtures of diagonal Gaussians equal torch.distributions."""

import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from ensue.nn.gaussian import Gaussian, Mixture


def test_surprisal_and_moments_equal_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    weights, means, deviations, x = (
        torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((5, 3), (5, 3, 4), (5, 3, 4), (5, 4))
    )
    ours = Mixture(weights.log_softmax(-1), Gaussian(means, deviations))
    theirs = MixtureSameFamily(Categorical(logits=weights), Independent(Normal(means, deviations.exp()), 1))
    torch.testing.assert_close(ours.nats(x), -theirs.log_prob(x))
    torch.testing.assert_close(ours.moments(), (theirs.mean, theirs.stddev))
