"""The bag of n-grams equals sets of tuples, and its scores and ratios equal their formulas."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ensue.models.ngram_bag import NgramBag, PairBag

same = torch.testing.assert_close
Gram = tuple[int, ...]
WORDS = range(6)
BUCKETS = 1 << 16
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=7), min_size=1, max_size=4)


def grams(text: Sequence[int], longest: int) -> set[Gram]:
    """Return the n-grams of a text without the unknown word 0."""
    all_grams = {tuple(text[t : t + n]) for n in range(1, longest + 1) for t in range(len(text) - n + 1)}
    return {gram for gram in all_grams if 0 not in gram}


def every_gram(longest: int) -> list[Gram]:
    return [gram for n in range(1, longest + 1) for gram in itertools.product(WORDS[1:], repeat=n)]


def batch(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.int64)
    return ids.view(len(rows), longest)


def row_of(bag: NgramBag, gram: Gram) -> int:
    """Return the row of an n-gram: the one that none of its parts has."""
    rows = {int(id) for id in bag.ngrams(torch.tensor([gram]))[0]} - {0}
    for part in grams(gram, bag.longest) - {gram}:
        rows -= {int(id) for id in bag.ngrams(torch.tensor([part]))[0]}
    (row,) = rows
    return row


BAGS = {longest: NgramBag(3, longest=longest, buckets=BUCKETS) for longest in (1, 2, 3)}
ROWS = {longest: {gram: row_of(bag, gram) for gram in every_gram(longest)} for longest, bag in BAGS.items()}


@pytest.fixture
def bag() -> NgramBag:
    """A bag with random scores and ratios, of which some are zero."""
    torch.manual_seed(0)
    bag = NgramBag(3, longest=2, buckets=BUCKETS)
    torch.nn.init.normal_(bag.weight)
    torch.nn.init.normal_(bag.bias)
    bag.ratio.data.uniform_(0, 2)
    bag.ratio.data[ROWS[2][2,]] = bag.ratio.data[ROWS[2][3, 4]] = 0.0
    return bag


def test_the_ngrams_of_the_tests_have_no_collisions() -> None:
    for longest, rows in ROWS.items():
        assert len(set(rows.values())) == len(rows) == sum(5**n for n in range(1, longest + 1))
        assert 0 < min(rows.values()) <= max(rows.values()) < BUCKETS
    assert all(ROWS[3][gram] == row for gram, row in ROWS[2].items())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("longest", [1, 2, 3])
@given(rows=texts, unknown=st.sampled_from([0, -1, -(1 << 32)]))
def test_a_text_becomes_the_set_of_its_ngrams(longest: int, rows: list[list[int]], unknown: int) -> None:
    """An n-gram has the same row in every text, and unknown words are in no n-gram."""
    words = batch(rows)
    rows_of_texts = BAGS[longest].ngrams(words.masked_fill(words == 0, unknown))
    for row, ids in zip(rows, rows_of_texts.tolist(), strict=True):
        known = [id for id in ids if id]
        assert known == sorted(known)
        assert known == sorted(ROWS[longest][gram] for gram in grams(row, longest))


@given(rows=texts)
def test_scores_equal_their_formula(rows: list[list[int]]) -> None:
    bag = NgramBag(3, longest=2, buckets=BUCKETS)
    random = torch.Generator().manual_seed(0)
    bag.weight.data.normal_(generator=random)
    bag.bias.data.normal_(generator=random)
    bag.ratio.data.uniform_(0, 2, generator=random)
    bag.ratio.data[ROWS[2][2,]] = bag.ratio.data[ROWS[2][3, 4]] = 0.0
    scores = bag(batch(rows))
    for row, row_scores in zip(rows, scores, strict=True):
        numbers = [ROWS[2][gram] for gram in grams(row, 2)]
        r = [bag.ratio[number].item() for number in numbers]
        norm = math.sqrt(sum(ratio**2 for ratio in r)) or 1.0
        for label in range(3):
            total = sum(ratio * bag.weight[n, label].item() for ratio, n in zip(r, numbers, strict=True))
            assert row_scores[label].item() == pytest.approx(bag.bias[label].item() + total / norm, abs=1e-4)


@pytest.mark.parametrize("rows", [[[], []], [[0, 0]], [[2]], [[]], []])
def test_texts_without_weighted_ngrams_have_the_bias_as_scores(bag: NgramBag, rows: list[list[int]]) -> None:
    """They have no words, unknown words, or a word with a ratio of 0; or there are no texts."""
    scores = bag(batch(rows))
    same(scores, bag.bias.expand(len(rows), 3))
    scores.sum().backward()
    assert bag.bias.grad is not None
    assert bag.weight.grad is None or not bag.weight.grad.any()


def test_only_weighted_ngrams_of_the_texts_have_gradients(bag: NgramBag) -> None:
    rows = [[1, 2, 1], [0, 3, 4]]
    bag(batch(rows)).square().sum().backward()
    assert bag.weight.grad is not None
    reached = set(bag.weight.grad.any(1).nonzero().flatten().tolist())
    expected = {ROWS[2][gram] for row in rows for gram in grams(row, 2)} - {ROWS[2][2,], ROWS[2][3, 4]}
    assert reached == expected
    assert bag.ratio.grad is None


@pytest.mark.slow
def test_ngrams_are_dropped_only_in_training(bag: NgramBag) -> None:
    """Two, one or none of the n-grams are kept; the kept n-grams have a norm of 1."""
    words = torch.tensor([[1, 0, 4]])
    one, four = ROWS[2][1,], ROWS[2][4,]
    bag.ratio.data[[one, four]] = 1.5
    both = bag.bias + (bag.weight[one] + bag.weight[four]) / math.sqrt(2)
    bag.dropout = 0.3
    same(bag.eval()(words.expand(50, -1)), both.expand(50, -1))
    bag.train()
    cases = [both, bag.bias + bag.weight[one], bag.bias + bag.weight[four], bag.bias]
    counts = [0] * 4
    for scores in bag(words.expand(2000, -1)):
        (case,) = [n for n, expected in enumerate(cases) if torch.allclose(scores, expected, atol=1e-5)]
        counts[case] += 1
    shares = np.array([0.49, 0.21, 0.21, 0.09])
    assert (abs(np.array(counts) / 2000 - shares) < 0.05).all()
    bag.dropout = 0.0
    same(bag(words)[0], both)


def test_a_new_bag_has_scores_of_zero() -> None:
    bag = NgramBag(3, buckets=64)
    assert not bag(torch.tensor([[1, 2, 3]])).any()
    assert (bag.ratio == 1).all()
    assert {name for name, parameter in bag.named_parameters() if parameter.requires_grad} == {"weight", "bias"}
    assert set(bag.state_dict()) == {"weight", "bias", "ratio"}


def test_ratios_equal_their_formula() -> None:
    """Wang & Manning 2012: log of share inside / share outside, with 1 added to each count.

    Row 0, which is padding, and n-grams of fewer than two texts are excluded.
    """
    bag = NgramBag(2, buckets=6)
    bag.weigh_by_ratio(torch.tensor([[90.0, 7.0], [5.0, 1.0], [2.0, 2.0], [1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]))
    inside, outside = {1: 6, 2: 3, 5: 1}, {1: 2, 2: 3, 5: 4}
    expected = [0.0] * 6
    for row, count in inside.items():
        expected[row] = abs(math.log((count / 10) / (outside[row] / 9)))
    same(bag.ratio.data, torch.tensor(expected))


def test_ratios_of_three_labels_are_the_maximum() -> None:
    counts = {1: [4, 0, 1], 2: [3, 3, 3], 4: [0, 7, 2]}
    present = torch.zeros(5, 3)
    for row, count in counts.items():
        present[row] = torch.tensor(count)
    bag = NgramBag(3, buckets=5)
    bag.weigh_by_ratio(present)
    for row in counts:
        ratios = []
        for k in range(3):
            p = {g: count[k] + 1 for g, count in counts.items()}
            q = {g: sum(count) - count[k] + 1 for g, count in counts.items()}
            ratios.append(abs(math.log((p[row] / sum(p.values())) / (q[row] / sum(q.values())))))
        assert bag.ratio[row].item() == pytest.approx(max(ratios), rel=1e-5)
    assert not bag.ratio[[0, 3]].any()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_ngrams_collide_no_more_than_at_random(longest: int) -> None:
    """The number of distinct rows is at least about that of random rows."""
    buckets, random = 1 << 13, torch.Generator().manual_seed(0)
    texts_of_words = torch.randint(1, 20_000, (buckets, longest), generator=random).unique(dim=0)
    ids = NgramBag(1, longest=longest, buckets=buckets).ngrams(texts_of_words)
    known = {gram for row in texts_of_words.tolist() for gram in grams(row, longest)}
    expected = buckets * (1 - math.exp(-len(known) / buckets))
    assert len(ids[ids > 0].unique()) > 0.97 * expected


@pytest.mark.parametrize("buckets", [-1, 0, 1])
def test_fewer_than_two_buckets_are_refused(buckets: int) -> None:
    with pytest.raises(ValueError, match=f"ngram_buckets is {buckets}; expected at least 2"):
        NgramBag(2, buckets=buckets)


def test_inverse_document_frequencies_equal_their_formula() -> None:
    """The formula is that of scikit-learn's `TfidfTransformer`; row 0 and n-grams of one text have weight 0."""
    bag = NgramBag(2, buckets=5)
    bag.weigh_by_idf(torch.tensor([9.0, 9.0, 2.0, 1.0, 0.0]), 9)
    same(bag.ratio.data, torch.tensor([0.0, 1.0, math.log(10 / 3) + 1, 0.0, 0.0]))


@given(pairs=st.lists(st.tuples(*[st.lists(st.sampled_from(WORDS[1:]), max_size=7)] * 2), min_size=1, max_size=4))
def test_pairs_are_compared_like_sets(pairs: list[tuple[list[int], list[int]]]) -> None:
    """N-grams of both texts, of one text, and the shares of each length that are in both are compared."""
    bag = PairBag(3, longest=2, buckets=BUCKETS)
    sides = [batch(rows) for rows in zip(*pairs, strict=True)]
    rows, overlaps = bag.compare(*sides)
    for pair, ids, shares in zip(pairs, rows.tolist(), overlaps.tolist(), strict=True):
        one, other = (grams(row, 2) for row in pair)
        expected = {ROWS[2][gram] for gram in one ^ other} | {BUCKETS + ROWS[2][gram] for gram in one & other}
        known = [id for id in ids if id]
        assert set(known) == expected
        assert len(known) == len(expected)
        expected_shares = []
        for n in (1, 2):
            a, b = ({gram for gram in side if len(gram) == n} for side in (one, other))
            expected_shares += sorted(len(a & b) / max(1, len(side)) for side in (a, b))
        assert shares == pytest.approx(expected_shares)
    assert all(map(torch.equal, bag.compare(*sides[::-1]), (rows, overlaps)))


def test_scores_of_a_pair_equal_their_formula() -> None:
    """Unknown words are compared too."""
    torch.manual_seed(0)
    bag = PairBag(3, longest=1, buckets=BUCKETS)
    for part in (bag.weight, bag.bias, bag.overlap):
        torch.nn.init.normal_(part)
    bag.ratio.data.uniform_(1, 2)
    one, other = torch.tensor([[1, 2, -7, 2]]), torch.tensor([[-7, 0, 1]])
    both = BUCKETS + torch.tensor(
        [ROWS[1][1,], *(bag.ngrams(torch.tensor([[-7]]), torch.tensor([[-7]]))[0][1:] - BUCKETS)]
    )
    rows = torch.tensor([ROWS[1][2,], *both])
    r = bag.ratio[rows]
    expected = bag.bias + r @ bag.weight[rows] / r.norm() + torch.tensor([2 / 3, 1.0]) @ bag.overlap
    same(bag(one, other)[0], expected)
    assert bag(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64)).equal(bag.bias.expand(2, -1))


def test_min_texts_of_one_weighs_ngrams_of_a_single_text() -> None:
    bag = NgramBag(2, buckets=4)
    bag.weigh_by_idf(torch.tensor([9.0, 1.0, 2.0, 0.0]), 9, min_texts=1)
    assert [row > 0 for row in bag.ratio.tolist()] == [False, True, True, False]
    bag.weigh_by_ratio(torch.tensor([[9.0, 9.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), min_texts=1)
    assert [row > 0 for row in bag.ratio.tolist()] == [False, True, True, False]


@pytest.mark.parametrize("kind", [NgramBag, PairBag])
def test_rows_without_weight_are_removed(kind: type[NgramBag]) -> None:
    """Scores and gradients equal those before, and removed rows had no gradient."""
    words = [torch.tensor([[1, 2, 3, 1], [4, 1, 2, 0]]), torch.tensor([[2, 3, 0], [5, 1, 2]])][: kind.tables]
    full, cut = (kind(3, longest=2, buckets=BUCKETS) for _ in range(2))
    present = torch.bincount(full.ngrams(*words).flatten(), minlength=full.num_rows).float()
    for bag in (full, cut):
        bag.weigh_by_idf(present, 9)
    known = full.ratio > 0
    assert cut.remove_unweighted() == known.sum() < (present > 0).sum()
    assert cut.place is not None
    torch.nn.init.normal_(full.weight)
    cut.weight.data[cut.place[known].long()] = full.weight.data[known]
    same(cut(*words), full(*words))
    for bag in (full, cut):
        bag(*words).square().sum().backward()
    assert full.weight.grad is not None
    assert cut.weight.grad is not None
    assert not full.weight.grad[~known].any()
    same(cut.weight.grad[1:], full.weight.grad[known])
    like = kind(3, longest=2, buckets=BUCKETS, num_kept_rows=int(known.sum()))
    assert {name: p.shape for name, p in like.named_parameters()} == {n: p.shape for n, p in cut.named_parameters()}
