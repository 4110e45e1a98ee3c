"""The dynamic programs of the CRF equal the enumeration of all paths."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from ensue.nn import k_best, log_partition, marginals, viterbi
from ensue.nn.heads import chain
from nn.heads.chains import INF, Problem, counted, enumerated, padded, problem


def plain_log_partition(emissions: Tensor, start: Tensor, transitions: Tensor, end: Tensor, mask: Tensor) -> Tensor:
    """Compute the forward algorithm of textbooks, in logarithms."""
    totals = []
    for row, length in zip(emissions, mask.sum(1).tolist(), strict=True):
        if not length:
            totals.append(row.new_zeros(()))
            continue
        alpha = start + row[0]
        for t in range(1, length):
            alpha = torch.logsumexp(alpha.unsqueeze(1) + transitions, 0) + row[t]
        totals.append(torch.logsumexp(alpha + end, 0))
    return torch.stack(totals)


SHAPES = [([4, 1, 3, 0, 2], 3), ([5, 5], 2), ([1], 4), ([3, 0], 1), ([0, 0], 2)]
"""Lengths and numbers of tags: ragged and empty rows, one position, one tag; a batch of empty rows."""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("lengths", "num_tags"), SHAPES)
@pytest.mark.usefixtures("sum_method")
def test_partition_and_marginals_are_sums_over_all_paths(lengths: list[int], num_tags: int, dtype: torch.dtype) -> None:
    if max(lengths) == 0:
        lengths = [*lengths, 1]
    p = problem(lengths, num_tags, dtype=dtype)
    rows = [enumerated(p, b) for b in range(len(lengths))]
    expected = torch.stack([torch.tensor(row.scores, dtype=torch.float64).logsumexp(0) for row in rows]).to(dtype)
    torch.testing.assert_close(log_partition(*p), expected)
    counts = torch.stack([counted(row, p.mask.shape[1], num_tags) for row in rows]).to(dtype)
    torch.testing.assert_close(marginals(*p), counts)


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    num_tags=st.integers(1, 3),
    forbidden=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    k=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
@example(lengths=[4, 1, 3, 0, 2], num_tags=3, forbidden=0.0, k=7, seed=0)
@example(lengths=[0, 0], num_tags=2, forbidden=0.0, k=7, seed=0)
def test_random_shapes_with_forbidden_tags_equal_the_enumeration(
    lengths: list[int], num_tags: int, forbidden: float, k: int, seed: int
) -> None:
    """If all paths of a row are forbidden, its scores are -inf; other rows are not affected."""
    p = problem(lengths, num_tags, forbidden=forbidden, seed=seed)
    totals, probabilities, (tags, scores) = log_partition(*p), marginals(*p), viterbi(*p)
    more_tags, more_scores = k_best(*p[:4], k=k, mask=p.mask)
    for b in range(len(lengths)):
        row = enumerated(p, b)
        possible = sum(score > -INF for score in row.scores)
        assert totals[b].item() == pytest.approx(torch.tensor(row.scores, dtype=torch.float64).logsumexp(0).item())
        assert scores[b].item() == pytest.approx(row.scores[0])
        count = min(k, possible)
        assert more_scores[b].tolist() == pytest.approx(row.scores[:count] + [-INF] * (k - count))
        if possible:
            T = p.mask.shape[1]
            assert tags[b].tolist() == padded(row.paths[0], T)
            assert more_tags[b].tolist() == [padded(path, T) for path in row.paths[:count]] + [[0] * T] * (k - count)
            torch.testing.assert_close(probabilities[b], counted(row, T, num_tags))


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.usefixtures("sum_method")
def test_gradients_equal_finite_differences(forbidden: float) -> None:
    p = problem([3, 0, 1, 2], 3, forbidden=forbidden, seed=3)
    upstream = torch.tensor([1.0, 2.0, -0.5, 3.0], dtype=torch.float64)
    tables = [table.masked_fill(table == -INF, 0.0).requires_grad_() for table in p[1:4]]
    banned = [table == -INF for table in p[1:4]]
    emissions = p.emissions.nan_to_num(0.0).requires_grad_()

    def function(emissions: Tensor, *tables: Tensor) -> Tensor:
        masked = (table.masked_fill(ban, -INF) for table, ban in zip(tables, banned, strict=True))
        return (log_partition(emissions, *masked, p.mask) * upstream).sum()

    assert torch.autograd.gradcheck(function, [emissions, *tables])


@pytest.mark.parametrize("num_tags", [17, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.usefixtures("sum_method")
def test_gradients_equal_those_of_the_forward_algorithm(dtype: torch.dtype, num_tags: int) -> None:
    p = problem([50, 13, 0, 37], num_tags, dtype=dtype)
    sources = [scores.detach().requires_grad_() for scores in p[:4]]
    exact = [scores.detach().double().requires_grad_() for scores in p[:4]]
    upstream = torch.tensor([1.0, -2.0, 5.0, 0.5], dtype=dtype)
    total, expected = log_partition(*sources, p.mask), plain_log_partition(*exact, p.mask)
    torch.testing.assert_close(total, expected.to(dtype))
    gradients = torch.autograd.grad((total * upstream).sum(), sources)
    expected_gradients = torch.autograd.grad((expected * upstream.double()).sum(), exact)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient.to(dtype))


def unconnected(end: float, step: float) -> Problem:
    """Return two tags without transitions between them: one is far better at both ends, the other in the middle.

    The middle makes the exponential of the first tag underflow, which then is needed at the end.
    """
    emissions = torch.zeros(1, 60, 2, dtype=torch.float64)
    emissions[:, :, 1] = step
    emissions[:, 0, 1] = emissions[:, -1, 1] = end
    transitions = torch.tensor([[0.0, -INF], [-INF, 0.0]], dtype=torch.float64)
    ends = torch.zeros(2, dtype=torch.float64)
    return Problem(emissions, ends, transitions, ends, torch.ones(1, 60, dtype=torch.bool))


def steep(scale: float, *, forbidden: float = 0.0) -> Problem:
    p = problem([20, 7, 1], 5, forbidden=forbidden, dtype=torch.float32, seed=1)
    return p._replace(emissions=p.emissions * scale)


def forced() -> Problem:
    """Return emissions that allow one path."""
    p = problem([6], 3, dtype=torch.float32)
    path = torch.tensor([0, 2, 2, 1, 0, 1])
    emissions = torch.full_like(p.emissions, -INF)
    emissions[0, torch.arange(6), path] = p.emissions[0, torch.arange(6), path]
    return p._replace(emissions=emissions)


EXTREMES: dict[str, Callable[[], Problem]] = {
    "unconnected, slowly": lambda: unconnected(-800.0, 28.0),
    "unconnected, at once": lambda: unconnected(-800.0, 900.0),
    "steep": lambda: steep(1e4),
    "steep and forbidden": lambda: steep(1e4, forbidden=0.3),
    "moderately steep": lambda: steep(60.0, forbidden=0.3),
    "large": lambda: steep(1.0)._replace(emissions=steep(1.0).emissions + 1e4),
    "transitions": lambda: steep(1.0)._replace(transitions=steep(1.0).transitions * 1e4),
    "forced": forced,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_scores_are_exact_where_exponentials_underflow(name: str) -> None:
    """Sums, their derivatives and maxima equal those in logarithms."""
    p = EXTREMES[name]()
    very_low = [scores.detach().double().clamp(min=-1e25).requires_grad_() for scores in p[:4]]
    expected = plain_log_partition(*very_low, p.mask)
    counts = torch.autograd.grad(expected.sum(), very_low)
    sources = [scores.detach().requires_grad_() for scores in p[:4]]
    total = log_partition(*sources, p.mask)
    torch.testing.assert_close(total, expected.to(total.dtype), rtol=1e-6, atol=1e-4)
    for gradient, expected_gradient in zip(torch.autograd.grad(total.sum(), sources), counts, strict=True):
        torch.testing.assert_close(gradient, expected_gradient.nan_to_num(0.0).to(gradient.dtype), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(marginals(*p), counts[0].to(p.emissions.dtype), rtol=1e-4, atol=1e-5)
    tags, scores = viterbi(*p)
    torch.testing.assert_close(chain.score(p.emissions, tags, *p[1:]), scores)
    assert (scores <= total + 1e-6 * total.abs()).all()


def left_to_right() -> Problem:
    """Return tags in a fixed order, as in a Bakis model: some tags cannot be reached from one of the ends."""
    p = problem([9, 4], 4)
    order = torch.arange(4)
    may = (order >= order.unsqueeze(1)) & (order <= order.unsqueeze(1) + 1)
    return p._replace(
        start=p.start.masked_fill(order > 0, -INF),
        transitions=p.transitions.masked_fill(~may, -INF),
        end=p.end.masked_fill(order < 3, -INF),
    )


def test_ordinary_scores_need_no_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do forbidden transitions; extreme scores do."""
    called = []
    plain = chain._log_partition_in_logs
    monkeypatch.setattr(chain, "_log_partition_in_logs", lambda *args: called.append(1) or plain(*args))
    for p in (steep(1.0), steep(10.0), left_to_right()):
        torch.testing.assert_close(log_partition(*p), plain_log_partition(*p).to(p.emissions.dtype))
    assert not called
    log_partition(*unconnected(-800.0, 28.0))
    assert called


@pytest.mark.slow
@pytest.mark.usefixtures("sum_method")
def test_sums_of_a_long_sentence_do_not_underflow() -> None:
    """A product of thousands of factors below 1 must be rescaled."""
    p = problem([3000, 1], 3)
    p = p._replace(transitions=p.transitions * 4)
    torch.testing.assert_close(log_partition(*p), plain_log_partition(*p))


def test_nan_scores_give_nan() -> None:
    p = problem([3, 2], 3)
    for place in range(4):
        scores = [part.clone() for part in p[:4]]
        scores[place].view(-1)[0] = torch.nan
        assert log_partition(*scores, p.mask)[0].isnan()


def test_gradients_can_be_computed_twice() -> None:
    p = problem([3, 1], 2)
    emissions = p.emissions.requires_grad_()
    total = log_partition(*p).sum()
    (first,) = torch.autograd.grad(total, emissions, retain_graph=True)
    (second,) = torch.autograd.grad(total, emissions)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_a_sum_without_references_is_freed_without_garbage_collection() -> None:
    """Its autograd graph has no reference cycle."""
    p = problem([3], 2)
    p.emissions.requires_grad_()
    gc.disable()
    try:
        total = log_partition(*p)
        last_seen = weakref.ref(total)
        del total
        assert last_seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.usefixtures("sum_method")
def test_marginals_are_equal_in_every_gradient_mode(mode: Callable[[], torch.no_grad]) -> None:
    p = problem([3, 0, 1], 2)
    expected = marginals(*p)
    with mode():
        torch.testing.assert_close(marginals(*(part.clone() for part in p)), expected)
