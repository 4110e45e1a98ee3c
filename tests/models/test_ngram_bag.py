"""The bag of n-grams, against sets of tuples; its scores and ratios by hand."""

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
    """The n-grams of a text that have no unknown word, which is 0."""
    found = {tuple(text[t : t + n]) for n in range(1, longest + 1) for t in range(len(text) - n + 1)}
    return {gram for gram in found if 0 not in gram}


def every_gram(longest: int) -> list[Gram]:
    return [gram for n in range(1, longest + 1) for gram in itertools.product(WORDS[1:], repeat=n)]


def batch(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.int64)
    return ids.view(len(rows), longest)


def row_of(bag: NgramBag, gram: Gram) -> int:
    """The row of an n-gram: in its text the one that no shorter text of its words has."""
    rows = {int(id) for id in bag.ngrams(torch.tensor([gram]))[0]} - {0}
    for part in grams(gram, bag.longest) - {gram}:
        rows -= {int(id) for id in bag.ngrams(torch.tensor([part]))[0]}
    (row,) = rows
    return row


BAGS = {longest: NgramBag(3, longest=longest, buckets=BUCKETS) for longest in (1, 2, 3)}
ROWS = {longest: {gram: row_of(bag, gram) for gram in every_gram(longest)} for longest, bag in BAGS.items()}


@pytest.fixture
def bag() -> NgramBag:
    """With scores and ratios of its own for every row; some ratios are zero."""
    torch.manual_seed(0)
    bag = NgramBag(3, longest=2, buckets=BUCKETS)
    torch.nn.init.normal_(bag.weight)
    torch.nn.init.normal_(bag.bias)
    bag.ratio.data.uniform_(0, 2)
    bag.ratio.data[ROWS[2][2,]] = bag.ratio.data[ROWS[2][3, 4]] = 0.0
    return bag


def test_every_ngram_has_a_row_of_its_own() -> None:
    """So that the tests below cannot meet a collision."""
    for longest, rows in ROWS.items():
        assert len(set(rows.values())) == len(rows) == sum(5**n for n in range(1, longest + 1))
        assert 0 < min(rows.values()) <= max(rows.values()) < BUCKETS
    assert all(ROWS[3][gram] == row for gram, row in ROWS[2].items())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("longest", [1, 2, 3])
@given(rows=texts, unknown=st.sampled_from([0, -1, -(1 << 32)]))
def test_a_text_is_the_set_of_its_ngrams(longest: int, rows: list[list[int]], unknown: int) -> None:
    """The same n-gram is the same row in any text, wherever it stands; what is unknown is in none."""
    words = batch(rows)
    found = BAGS[longest].ngrams(words.masked_fill(words == 0, unknown))
    for row, ids in zip(rows, found.tolist(), strict=True):
        known = [id for id in ids if id]
        assert known == sorted(known)
        assert known == sorted(ROWS[longest][gram] for gram in grams(row, longest))


@given(rows=texts)
def test_scores_by_hand(rows: list[list[int]]) -> None:
    bag = NgramBag(3, longest=2, buckets=BUCKETS)
    random = torch.Generator().manual_seed(0)
    bag.weight.data.normal_(generator=random)
    bag.bias.data.normal_(generator=random)
    bag.ratio.data.uniform_(0, 2, generator=random)
    bag.ratio.data[ROWS[2][2,]] = bag.ratio.data[ROWS[2][3, 4]] = 0.0
    scores = bag(batch(rows))
    for row, found in zip(rows, scores, strict=True):
        numbers = [ROWS[2][gram] for gram in grams(row, 2)]
        r = [bag.ratio[number].item() for number in numbers]
        norm = math.sqrt(sum(ratio**2 for ratio in r)) or 1.0
        for label in range(3):
            total = sum(ratio * bag.weight[n, label].item() for ratio, n in zip(r, numbers, strict=True))
            assert found[label].item() == pytest.approx(bag.bias[label].item() + total / norm, abs=1e-4)


@pytest.mark.parametrize("rows", [[[], []], [[0, 0]], [[2]], [[]], []])
def test_what_says_nothing_leaves_the_bias(bag: NgramBag, rows: list[list[int]]) -> None:
    """No words, unknown ones, one with a ratio of 0; no text at all."""
    scores = bag(batch(rows))
    same(scores, bag.bias.expand(len(rows), 3))
    scores.sum().backward()
    assert bag.bias.grad is not None
    assert bag.weight.grad is None or not bag.weight.grad.any()


def test_gradients_reach_what_stands_there(bag: NgramBag) -> None:
    rows = [[1, 2, 1], [0, 3, 4]]
    bag(batch(rows)).square().sum().backward()
    assert bag.weight.grad is not None
    reached = set(bag.weight.grad.any(1).nonzero().flatten().tolist())
    expected = {ROWS[2][gram] for row in rows for gram in grams(row, 2)} - {ROWS[2][2,], ROWS[2][3, 4]}
    assert reached == expected
    assert bag.ratio.grad is None


@pytest.mark.slow
def test_ngrams_are_left_out_in_training_alone(bag: NgramBag) -> None:
    """Of two n-grams of the same ratio both, either or none are there; what is there has a norm of 1."""
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


def test_before_training_all_scores_are_the_bias() -> None:
    bag = NgramBag(3, buckets=64)
    assert not bag(torch.tensor([[1, 2, 3]])).any()
    assert (bag.ratio == 1).all()
    assert {name for name, parameter in bag.named_parameters() if parameter.requires_grad} == {"weight", "bias"}
    assert set(bag.state_dict()) == {"weight", "bias", "ratio"}


def test_ratios_by_hand() -> None:
    """Wang & Manning 2012: log of share inside / share outside, with 1 added to each count.

    Row 0, where padding is, has no part in it, nor has what only one text has, or none.
    """
    bag = NgramBag(2, buckets=6)
    bag.weigh_by_ratio(torch.tensor([[90.0, 7.0], [5.0, 1.0], [2.0, 2.0], [1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]))
    inside, outside = {1: 6, 2: 3, 5: 1}, {1: 2, 2: 3, 5: 4}
    expected = [0.0] * 6
    for row, count in inside.items():
        expected[row] = abs(math.log((count / 10) / (outside[row] / 9)))
    same(bag.ratio.data, torch.tensor(expected))


def test_ratios_of_three_labels_are_those_of_the_most_telling_one() -> None:
    counts = {1: [4, 0, 1], 2: [3, 3, 3], 4: [0, 7, 2]}
    present = torch.zeros(5, 3)
    for row, count in counts.items():
        present[row] = torch.tensor(count)
    bag = NgramBag(3, buckets=5)
    bag.weigh_by_ratio(present)
    for row in counts:
        found = []
        for k in range(3):
            p = {g: count[k] + 1 for g, count in counts.items()}
            q = {g: sum(count) - count[k] + 1 for g, count in counts.items()}
            found.append(abs(math.log((p[row] / sum(p.values())) / (q[row] / sum(q.values())))))
        assert bag.ratio[row].item() == pytest.approx(max(found), rel=1e-5)
    assert not bag.ratio[[0, 3]].any()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_ngrams_share_rows_no_more_than_at_random(longest: int) -> None:
    """They hit as many rows as if each were drawn, or more: single words are spread evenly."""
    buckets, random = 1 << 13, torch.Generator().manual_seed(0)
    found = torch.randint(1, 20_000, (buckets, longest), generator=random).unique(dim=0)
    ids = NgramBag(1, longest=longest, buckets=buckets).ngrams(found)
    known = {gram for row in found.tolist() for gram in grams(row, longest)}
    expected = buckets * (1 - math.exp(-len(known) / buckets))
    assert len(ids[ids > 0].unique()) > 0.97 * expected


@pytest.mark.parametrize("buckets", [-1, 0, 1])
def test_one_place_is_not_enough(buckets: int) -> None:
    with pytest.raises(ValueError, match=f"ngram_buckets is {buckets}; expected at least 2"):
        NgramBag(2, buckets=buckets)


def test_inverse_document_frequencies_by_hand() -> None:
    """As scikit-learn's `TfidfTransformer` has it with its smoothing; row 0 and what one text has count for nothing."""
    bag = NgramBag(2, buckets=5)
    bag.weigh_by_idf(torch.tensor([9.0, 9.0, 2.0, 1.0, 0.0]), 9)
    same(bag.ratio.data, torch.tensor([0.0, 1.0, math.log(10 / 3) + 1, 0.0, 0.0]))


@given(pairs=st.lists(st.tuples(*[st.lists(st.sampled_from(WORDS[1:]), max_size=7)] * 2), min_size=1, max_size=4))
def test_a_pair_by_sets(pairs: list[tuple[list[int], list[int]]]) -> None:
    """What both texts have, what one has alone, and which shares of each length are in both."""
    bag = PairBag(3, longest=2, buckets=BUCKETS)
    sides = [batch(rows) for rows in zip(*pairs, strict=True)]
    found, overlaps = bag.compare(*sides)
    for pair, ids, shares in zip(pairs, found.tolist(), overlaps.tolist(), strict=True):
        one, other = (grams(row, 2) for row in pair)
        expected = {ROWS[2][gram] for gram in one ^ other} | {BUCKETS + ROWS[2][gram] for gram in one & other}
        known = [id for id in ids if id]
        assert set(known) == expected
        assert len(known) == len(expected)
        by_hand = []
        for n in (1, 2):
            a, b = ({gram for gram in side if len(gram) == n} for side in (one, other))
            by_hand += sorted(len(a & b) / max(1, len(side)) for side in (a, b))
        assert shares == pytest.approx(by_hand)
    assert all(map(torch.equal, bag.compare(*sides[::-1]), (found, overlaps)))


def test_scores_of_a_pair_by_hand() -> None:
    """Words that the model does not know are compared too."""
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


def test_ngrams_of_a_single_text_count_if_asked_for() -> None:
    bag = NgramBag(2, buckets=4)
    bag.weigh_by_idf(torch.tensor([9.0, 1.0, 2.0, 0.0]), 9, min_texts=1)
    assert [row > 0 for row in bag.ratio.tolist()] == [False, True, True, False]
    bag.weigh_by_ratio(torch.tensor([[9.0, 9.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]), min_texts=1)
    assert [row > 0 for row in bag.ratio.tolist()] == [False, True, True, False]


@pytest.mark.parametrize("kind", [NgramBag, PairBag])
def test_rows_that_say_nothing_are_left_out(kind: type[NgramBag]) -> None:
    """Scores and gradients are those of all rows, and the others have none."""
    words = [torch.tensor([[1, 2, 3, 1], [4, 1, 2, 0]]), torch.tensor([[2, 3, 0], [5, 1, 2]])][: kind.tables]
    whole, cut = (kind(3, longest=2, buckets=BUCKETS) for _ in range(2))
    present = torch.bincount(whole.ngrams(*words).flatten(), minlength=whole.num_rows).float()
    for bag in (whole, cut):
        bag.weigh_by_idf(present, 9)
    known = whole.ratio > 0
    assert cut.remove_unweighted() == known.sum() < (present > 0).sum()
    assert cut.place is not None
    torch.nn.init.normal_(whole.weight)
    cut.weight.data[cut.place[known].long()] = whole.weight.data[known]
    same(cut(*words), whole(*words))
    for bag in (whole, cut):
        bag(*words).square().sum().backward()
    assert whole.weight.grad is not None
    assert cut.weight.grad is not None
    assert not whole.weight.grad[~known].any()
    same(cut.weight.grad[1:], whole.weight.grad[known])
    like = kind(3, longest=2, buckets=BUCKETS, num_kept_rows=int(known.sum()))
    assert {name: p.shape for name, p in like.named_parameters()} == {n: p.shape for n, p in cut.named_parameters()}
