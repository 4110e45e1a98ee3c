"""The weighted sum of layers equals equation 1 of Peters et al. 2018."""

import math

import pytest
import torch

from ensue.nn import ScalarMix


def test_a_scalar_mix_equals_equation_1() -> None:
    mix, h = ScalarMix(3).double(), torch.randn(2, 5, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -1.2, 2.0]))
        mix.gamma.fill_(1.7)
    exponentials = [math.exp(score) for score in (0.3, -1.2, 2.0)]
    expected = sum(1.7 * value / sum(exponentials) * h[..., layer, :] for layer, value in enumerate(exponentials))
    torch.testing.assert_close(mix(h), expected)
    assert torch.autograd.gradcheck(mix, h.requires_grad_())


def test_a_new_scalar_mix_is_the_mean_and_has_gradients() -> None:
    mix, h = ScalarMix(4), torch.randn(7, 4, 2)
    torch.testing.assert_close(mix(h), h.mean(1))
    mix(h).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in mix.parameters())


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ScalarMix expects h of \(any, 3, any\), found \(7, 4, 2\)"):
        ScalarMix(3)(torch.randn(7, 4, 2))
