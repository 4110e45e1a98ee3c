"""Normal distributions equal those of torch."""

import torch
from torch.distributions import Normal, kl_divergence

from ensue.nn.draws import RowSlice, drawing_rows
from ensue.nn.gaussian import Gaussian


def gaussian(seed: int) -> Gaussian:
    """Return distributions for four rows and three positions, of two features."""
    numbers = torch.Generator().manual_seed(seed)
    return Gaussian(*torch.randn(2, 4, 3, 2, generator=numbers, dtype=torch.float64))


def of_torch(one: Gaussian) -> Normal:
    return Normal(one.mean, one.log_deviation.exp())


def test_surprisals_and_divergences_equal_those_of_torch() -> None:
    one, other, x = gaussian(0), gaussian(1), gaussian(2).mean
    torch.testing.assert_close(one.nats(x), -of_torch(one).log_prob(x).sum(-1))
    torch.testing.assert_close(one.divergence(other), kl_divergence(of_torch(one), of_torch(other)).sum(-1))
    logp, others = (of_torch(each).log_prob(x).sum(-1) for each in (one, other))
    torch.testing.assert_close(one.ratio(x, other), logp - others)
    standard = Normal(torch.zeros(2, dtype=torch.float64), 1.0)
    torch.testing.assert_close(one.divergence(), kl_divergence(of_torch(one), standard).sum(-1))
    torch.testing.assert_close(one.ratio(x), logp - standard.log_prob(x).sum(-1))


def test_draws_have_mean_and_deviation_and_are_differentiable() -> None:
    torch.manual_seed(0)
    mean, log_deviation = torch.tensor([3.0, -1.0]), torch.tensor([0.5, -2.0], requires_grad=True)
    drawn = Gaussian(mean.expand(20_000, 2), log_deviation.expand(20_000, 2)).draw()
    torch.testing.assert_close(drawn.mean(0), mean, rtol=0.02, atol=0)
    torch.testing.assert_close(drawn.std(0), log_deviation.exp(), rtol=0.02, atol=0)
    drawn[0].sum().backward()
    assert log_deviation.grad is not None
    torch.testing.assert_close(log_deviation.grad, (drawn[0] - mean).detach())


def test_draws_of_a_row_do_not_depend_on_the_slice_of_the_batch() -> None:
    full = gaussian(0)
    torch.manual_seed(3)
    draws = full.draw()
    torch.manual_seed(3)
    with drawing_rows(RowSlice(slice(1, 3), 4)):
        sliced_draws = Gaussian(*(part[1:3] for part in full)).draw()
    assert torch.equal(sliced_draws, draws[1:3])


def test_parameters_in_bfloat16_are_converted_to_float32() -> None:
    parameters = torch.tensor([[1.0, -3.0]], dtype=torch.bfloat16)
    gaussian = Gaussian.of(parameters, least=0.5)
    assert gaussian.mean.dtype == gaussian.log_deviation.dtype == torch.float32
    torch.testing.assert_close(gaussian.log_deviation.exp(), 0.5 + torch.log1p(torch.tensor([[-3.0]]).exp()))
    torch.testing.assert_close(gaussian.reparameterize(torch.ones(1, 1)), 1 + gaussian.log_deviation.exp())
