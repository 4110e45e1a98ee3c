"""The CRF equals the probabilities of all its paths."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.nn import LegalTags, LinearChainCRF, marginals_of_one, viterbi_path
from nn.heads.chains import INF, Problem, counted, enumerated, padded, problem


def some_tags(p: Problem) -> Tensor:
    """Return random tags with -100 at padding."""
    random = torch.Generator().manual_seed(5)
    tags = torch.randint(len(p.start), p.mask.shape, generator=random)
    return tags.masked_fill(~p.mask, -100)


def crf_with(p: Problem, legal: LegalTags | None = None) -> LinearChainCRF:
    crf = LinearChainCRF(len(p.start), legal=legal).to(p.emissions.dtype)
    with torch.no_grad():
        for parameter, table in zip((crf.start, crf.transitions, crf.end), p[1:4], strict=True):
            parameter.copy_(table)
    return crf


LEGAL = LegalTags(
    start=torch.tensor([True, True, False]),
    pairs=torch.tensor([[True, True, False], [True, True, True], [True, True, True]]),
    end=torch.tensor([True, True, True]),
)
"""O, B, I: an I follows a B or an I."""


@pytest.mark.parametrize("legal", [None, LEGAL], ids=["free", "IOB"])
def test_all_methods_equal_the_distribution_over_legal_paths(legal: LegalTags | None) -> None:
    p = problem([4, 2, 0, 1], 3)
    crf = crf_with(p, legal)
    known = p
    if legal is not None:
        start, transitions, end = (table.masked_fill(~ban, -INF) for table, ban in zip(p[1:4], legal, strict=True))
        known = Problem(p.emissions, start, transitions, end, p.mask)
    rows = [enumerated(known, b) for b in range(4)]
    totals = torch.stack([torch.tensor(row.scores, dtype=torch.float64).logsumexp(0) for row in rows])
    torch.testing.assert_close(crf.log_partition(p.emissions, p.mask), totals)
    tags, scores = crf.best(p.emissions, p.mask)
    assert tags.tolist() == [padded(row.paths[0], 4) for row in rows]
    torch.testing.assert_close(crf.score(p.emissions, tags, p.mask), scores)
    torch.testing.assert_close(crf.nats(p.emissions, tags, p.mask), totals - scores)
    torch.testing.assert_close(crf.best_k(p.emissions, 3, p.mask)[0][:, 0], tags)
    torch.testing.assert_close(crf.marginals(p.emissions, p.mask), torch.stack([counted(row, 4, 3) for row in rows]))
    for b, row in enumerate(rows):
        length = int(p.mask[b].sum())
        one = p.emissions[b, :length].numpy()
        assert viterbi_path(one, *crf.tables()).tolist() == list(row.paths[0])
        np.testing.assert_allclose(marginals_of_one(one, *crf.tables()), counted(row, length, 3), rtol=1e-9, atol=1e-15)


def test_an_illegal_gold_path_has_a_finite_loss_and_gradients() -> None:
    p = problem([3, 2], 3)
    crf = crf_with(p, LEGAL)
    emissions = p.emissions.nan_to_num(0.0).requires_grad_()
    tags = torch.tensor([[2, 0, 2], [0, 1, 0]])  # begins with I
    nats = crf.nats(emissions, tags, p.mask)
    assert nats.isfinite().all()
    nats.sum().backward()
    for source in (emissions, *crf.parameters()):
        assert source.grad is not None
        assert source.grad.isfinite().all()
        assert source.grad.any()


@pytest.mark.usefixtures("sum_method")
def test_padding_changes_no_result() -> None:
    """Padding is NaN or one of two numbers. Its gradient is 0."""
    p = problem([5, 2, 0, 3], 4)
    tags, gradients = some_tags(p), []
    for filling in (torch.nan, 0.0, -3.0):
        crf = crf_with(p)
        emissions = p.emissions.masked_fill(~p.mask.unsqueeze(2), filling).requires_grad_()
        crf.nats(emissions, tags, p.mask).sum().backward()
        assert emissions.grad is not None
        assert not emissions.grad[~p.mask].any()
        gradients.append([emissions.grad, *(parameter.grad for parameter in crf.parameters())])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=0)
    torch.testing.assert_close(gradients[0], gradients[2], rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "length"), [(0, 3), (2, 0), (0, 0)])
def test_batches_may_be_empty(rows: int, length: int) -> None:
    crf = LinearChainCRF(3, legal=LEGAL)
    emissions, tags = torch.zeros(rows, length, 3), torch.zeros(rows, length, dtype=torch.int64)
    assert crf.nats(emissions, tags).tolist() == [0.0] * rows
    assert crf.marginals(emissions).shape == (rows, length, 3)
    assert crf.best(emissions)[0].shape == (rows, length)
    assert crf.best(emissions)[1].tolist() == [0.0] * rows
    assert crf.best_k(emissions, 2)[0].shape == (rows, 2, length)
    assert crf.best_k(emissions, 2)[1].tolist() == [[0.0, -INF]] * rows
    assert viterbi_path(np.zeros((0, 3), np.float32), *crf.tables()).tolist() == []
    assert marginals_of_one(np.zeros((0, 3), np.float32), *crf.tables()).shape == (0, 3)


@pytest.mark.parametrize("size", [1.0, 30.0, 300.0, 3000.0])
def test_marginals_of_one_sentence_equal_those_of_a_batch(size: float) -> None:
    """If products of exponentials would underflow, they are computed in logarithms."""
    generator = torch.Generator().manual_seed(1)
    crf = crf_with(problem([3], 3), LEGAL)
    emissions = size * torch.randn(1, 40, 3, generator=generator, dtype=torch.float64)
    result = marginals_of_one(emissions[0].numpy(), *crf.tables())
    np.testing.assert_allclose(result, crf.marginals(emissions)[0].numpy(), rtol=1e-7, atol=1e-12)


def test_half_precision_emissions_are_summed_in_float32() -> None:
    p = problem([40, 17], 6, dtype=torch.float32)
    crf, tags = crf_with(p), some_tags(p)
    half = p.emissions.bfloat16()
    expected = crf.nats(half.float(), tags, p.mask)
    with torch.autocast("cpu", torch.bfloat16):
        nats = crf.nats(half.requires_grad_(), tags, p.mask)
        nats.sum().backward()
    assert nats.dtype == torch.float32
    torch.testing.assert_close(nats, expected, rtol=1e-6, atol=1e-4)
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16


def test_the_state_dict_has_only_the_scores() -> None:
    """The legal tags follow from the labels, which are saved elsewhere."""
    crf = LinearChainCRF(3, legal=LEGAL)
    assert set(crf.state_dict()) == {"start", "transitions", "end"}
    assert repr(crf) == "LinearChainCRF(num_tags=3, legal)"
    assert not any(parameter.any() for parameter in crf.parameters())


def test_legal_tags_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="legal has 3 tags; expected num_tags = 4"):
        LinearChainCRF(4, legal=LEGAL)


def test_the_loss_of_illegal_paths_can_be_trained_to_zero() -> None:
    """The loss is never negative during training."""
    crf, tags = LinearChainCRF(3, legal=LEGAL), torch.tensor([[2, 1, 0, 2], [0, 1, 0, 1], [0, 2, 0, 0]])
    emissions = torch.nn.Parameter(torch.zeros(3, 4, 3))
    optimizer = torch.optim.AdamW([emissions, *crf.parameters()], lr=0.5)
    for _ in range(60):
        nats = crf.nats(emissions, tags)
        assert nats.min() >= 0
        optimizer.zero_grad()
        nats.sum().backward()
        optimizer.step()
    assert nats.max() < 0.1


@pytest.mark.parametrize("num_tags", [1, 3, 17, 40])
@pytest.mark.parametrize("scale", [3.0, 200.0], ids=["usual", "out of range of float32"])
@pytest.mark.parametrize("is_free", [True, False], ids=["free", "legal"])
def test_sums_in_float32_equal_those_in_float64(num_tags: int, scale: float, is_free: bool) -> None:
    random = torch.Generator().manual_seed(0)
    lengths = torch.tensor([13, 0, 1, 7, 2])
    mask, K = torch.arange(13) < lengths.unsqueeze(1), num_tags
    pairs = (torch.rand(K, K, generator=random) > 0.3).fill_diagonal_(True)
    legal = LegalTags(torch.arange(K) % 5 < 4, pairs, torch.arange(K) % 3 < 2)
    crf, weights = LinearChainCRF(K, legal=None if is_free else legal), torch.rand(5, generator=random)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, generator=random)
    emissions = (scale * torch.randn(5, 13, K, generator=random)).masked_fill(~mask.unsqueeze(2), torch.nan)
    tags, results = torch.randint(K, mask.shape, generator=random), []
    for in_float32 in (False, True):
        crf.in_float32, scores = in_float32, emissions.clone().requires_grad_()
        nats = crf.nats(scores, tags, mask)
        gradients = torch.autograd.grad((nats * weights).sum(), [scores, *crf.parameters()])
        results.append([nats.detach(), *gradients])
    for result, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(result, expected, rtol=2e-5, atol=2e-5)
