"""The weighted sum of layers: equation 1 of Peters et al. 2018, layer by layer."""

import math

import pytest
import torch

from ensue.nn import ScalarMix


def test_it_is_equation_1() -> None:
    mix, h = ScalarMix(3).double(), torch.randn(2, 5, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -1.2, 2.0]))
        mix.gamma.fill_(1.7)
    exponentials = [math.exp(score) for score in (0.3, -1.2, 2.0)]
    expected = sum(1.7 * value / sum(exponentials) * h[..., layer, :] for layer, value in enumerate(exponentials))
    torch.testing.assert_close(mix(h), expected)
    assert torch.autograd.gradcheck(mix, h.requires_grad_())


def test_it_begins_as_the_mean_and_has_a_gradient() -> None:
    mix, h = ScalarMix(4), torch.randn(7, 4, 2)
    torch.testing.assert_close(mix(h), h.mean(1))
    mix(h).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in mix.parameters())


def test_another_number_of_layers_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"ScalarMix expects h of \(any, 3, any\), found \(7, 4, 2\)"):
        ScalarMix(3)(torch.randn(7, 4, 2))
