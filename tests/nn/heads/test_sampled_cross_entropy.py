"""The sampled softmax with all words equals the full softmax, and its estimate of the sum is unbiased."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding, WordSample, sampled_cross_entropy

N, D, V = 6, 5, 11


def problem(dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """Return h, weight and bias, and targets."""
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((N, D), (V, D), (V,))], torch.randint(
        V, (N,)
    )


def every_word() -> WordSample:
    return WordSample(torch.randperm(V), torch.zeros(V))


def test_a_sample_of_every_word_gives_the_full_softmax() -> None:
    sources, targets = problem()
    loss = sampled_cross_entropy(*sources, targets, every_word())
    expected = F.cross_entropy(F.linear(*sources), targets, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, sources), torch.autograd.grad(expected, sources))


def test_the_sum_of_exponentials_is_unbiased() -> None:
    """The mean estimate over all pairs of words, weighted by their probabilities, equals Z."""
    (h, weight, bias), targets = problem()
    q = torch.softmax(torch.randn(V, dtype=torch.float64), 0)
    logits = F.linear(h, weight, bias).detach()
    mean = torch.zeros(N, dtype=torch.float64)
    for a in range(V):
        for b in range(V):
            ids = torch.tensor([a, b])
            sample = WordSample(ids, (2 * q[ids]).log())
            nats = torch.stack(
                [sampled_cross_entropy(h[n : n + 1], weight, bias, targets[n : n + 1], sample) for n in range(N)]
            )
            mean += q[a] * q[b] * (nats.detach() + logits.gather(1, targets.unsqueeze(1)).squeeze(1)).exp()
    torch.testing.assert_close(mean, logits.exp().sum(1))


def test_nats_equal_a_case_computed_by_hand() -> None:
    """The target has score 0, a word with score log 3 an expected count of 0.5; Z = 1 + 3 / 0.5."""
    h, weight = torch.ones(1, 1), torch.tensor([[0.0], [torch.tensor(3.0).log()]])
    sample = WordSample(torch.tensor([1, 0]), torch.tensor([0.5, 0.9]).log())
    nats = sampled_cross_entropy(h, weight, torch.zeros(2), torch.tensor([0]), sample)
    assert nats.item() == pytest.approx(torch.tensor(7.0).log().item())


@pytest.mark.parametrize("tied", [False, True])
def test_heads_train_by_a_sample_and_score_by_all_words(tied: bool) -> None:
    torch.manual_seed(0)
    head = TiedSoftmaxHead(4, TokenEmbedding(V, D)) if tied else SoftmaxHead(D, V)
    h, targets = torch.randn(2, 3, head.d_in), torch.randint(V, (2, 3))
    expected = head.nats(h, targets).sum()
    torch.testing.assert_close(head.total_nats(h, targets, sample=every_word()), expected)
    some = WordSample(torch.tensor([3, 4]), torch.zeros(2))
    assert head.total_nats(h, targets, sample=some) < expected
    with pytest.raises(ValueError, match="cannot be combined with label smoothing"):
        head.total_nats(h, targets, sample=some, label_smoothing=0.1)


def test_wrong_samples_are_refused() -> None:
    (h, weight, bias), targets = problem()
    with pytest.raises(TypeError, match=r"sample\.ids"):
        sampled_cross_entropy(h, weight, bias, targets, WordSample(torch.zeros(2), torch.zeros(2)))
    with pytest.raises(ValueError, match=r"sample\.log_expected"):
        sampled_cross_entropy(h, weight, bias, targets, WordSample(torch.tensor([1]), torch.zeros(2)))
