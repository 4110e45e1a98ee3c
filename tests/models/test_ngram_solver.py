"""Solved weights of n-grams equal those of scikit-learn's logistic regression on the same features, calibrated."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import dirichlet_multinomial, multinomial
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ensue.data.division import assign_folds
from ensue.models import ngram_bag
from ensue.models.ngram_bag import CHARACTER_SHARE, EQUAL_SHARES, PRIOR_DEVIATION, NgramBag, PairBag, Solution, solve
from ensue.text.lexicon import Lexicon

TEXTS, LABELS = 40, 3
FOLDS = assign_folds(np.arange(TEXTS), 5, seed=1)
Batches = list[tuple[Tensor, tuple[Tensor, ...]]]


def draw(bag: NgramBag, *, texts: int = 1) -> tuple[Batches, np.ndarray[Any, Any]]:
    """Return two batches of words, the later texts first and padded, and their features as a dense matrix."""
    generator = torch.Generator().manual_seed(0)
    words = [torch.randint(1, 12, (TEXTS, 7), generator=generator) for _ in range(texts)]
    bag.weigh(torch.rand(bag.num_rows, generator=generator) + 0.5)
    later, first = torch.arange(25, TEXTS), torch.arange(25)
    padded = tuple(torch.nn.functional.pad(x[later], (0, 2)) for x in words)
    batches = [(later, padded), (first, tuple(x[first] for x in words))]
    dense = np.zeros((TEXTS, sum(map(len, bag.term_weights))))
    for numbers, batch in batches:
        for row, ids, values in zip(numbers, *bag.terms(*batch), strict=True):
            np.add.at(dense[row], ids[ids > 0], values[ids > 0].detach())
    return batches, dense


@torch.no_grad()
def scores_of(bag: NgramBag, batches: Batches) -> Tensor:
    (later, padded), (first, batch) = batches
    return torch.cat((bag(*batch), bag(*padded)))[torch.cat((first, later)).argsort()].double()


def solved(
    bag: NgramBag, batches: Batches, targets: Any, *, weights: Tensor | None = None, dense: Any = None
) -> Solution:
    multiple = targets.ndim == 2
    folds = torch.from_numpy(FOLDS)
    return solve(bag, batches, torch.from_numpy(targets), folds, weights=weights, multiple=multiple, dense=dense)


def known_features(bag: NgramBag, dense: Any, rows: Any) -> Any:
    """Return the features without n-grams that no text of `rows` has, rescaled to the previous norm of each kind."""
    known = dense * (dense[rows] != 0).any(0)
    overlap = np.arange(dense.shape[1]) >= len(bag.weight)
    of_characters = np.zeros_like(overlap)
    of_characters[: len(bag.weight)] = rows_of(bag) % bag.table_rows >= bag.buckets
    for kind in (~of_characters & ~overlap, of_characters):
        norms = [np.linalg.norm(x[:, kind], axis=1, keepdims=True) for x in (dense, known)]
        known[:, kind] *= norms[0] / np.maximum(norms[1], 1e-6)
    return np.where(overlap, dense, known)


def rows_of(bag: NgramBag) -> Any:
    """Return the row of the hash table of each weight; 0 for the first, which is for padding."""
    rows = np.arange(len(bag.weight))
    if bag.place is not None:
        rows[bag.place[bag.place > 0].numpy()] = np.flatnonzero(bag.place)
    return rows


def weights_of(classes: Any) -> Any:
    """Return the expected shares of labels, divided by their shares in a sample."""
    counts, ones = np.bincount(classes, minlength=LABELS), np.ones(LABELS)
    equal = EQUAL_SHARES * multinomial.pmf(counts, len(classes), ones / LABELS)
    unequal = (1 - EQUAL_SHARES) * dirichlet_multinomial.pmf(counts, ones, len(classes))
    expected = equal / LABELS + unequal * (counts + 1) / (len(classes) + LABELS)
    return expected / (equal + unequal) * len(classes) / counts


def calibrated(logits: Any, classes: Any, rows: Any, weights: Any) -> Any:
    """Return all logits with the scale and the shifts that are learned from those of `rows`."""
    known, gold = logits[rows], classes[rows]
    factors = weights_of(gold) if weights is None else weights

    def at(x: Any, values: Any) -> Any:
        return np.exp(x[0]) / known.std() * values + x[1:]

    def objective(x: Any) -> float:
        scores = at(x, known)
        losses = logsumexp(scores, 1) - scores[np.arange(len(gold)), gold]
        return float(factors[gold] @ losses + x @ x / (2 * PRIOR_DEVIATION**2))

    return at(minimize(objective, np.zeros(1 + LABELS), tol=1e-5).x, logits)


def check(
    bag: NgramBag, batches: Batches, dense: Any, classes: Any, weights: Tensor | None = None,
    others: tuple[Tensor, torch.nn.Linear] | None = None,
) -> Solution:  # fmt: skip
    """Compare the scores of all texts, and of those left out by cross-validation, with scikit-learn's."""
    solution = solved(bag, batches, classes, weights=weights, dense=others)
    if others is not None:
        dense = dense * np.where(np.arange(dense.shape[1]) < dense.shape[1] - others[0].shape[1], 1, solution.norm**0.5)
    factors = None if weights is None else weights.numpy()
    balanced = None if factors is None else dict(enumerate(factors))

    def expected(rows: Any) -> Any:
        model = LogisticRegression(C=solution.strength, tol=1e-9, max_iter=10_000, class_weight=balanced)
        scores = model.fit(dense[rows], classes[rows]).decision_function
        return [
            values - values.mean(1, keepdims=True) for values in map(scores, (dense, known_features(bag, dense, rows)))
        ]

    everything, left_out = np.arange(TEXTS), np.zeros((TEXTS, LABELS))
    for fold in range(5):
        left_out[fold == FOLDS] = expected(fold != FOLDS)[1][fold == FOLDS]
    for fold in range(5):
        values = calibrated(left_out, classes, fold != FOLDS, factors)[fold == FOLDS]
        np.testing.assert_allclose(centered(solution.logits[fold == FOLDS]), centered(values), atol=2e-3)
    both = np.concatenate((left_out, expected(everything)[0]))
    values = calibrated(both, classes, everything, factors)[TEXTS:]
    scores = scores_of(bag, batches) + (0 if others is None else others[1](others[0]).detach())
    np.testing.assert_allclose(centered(scores), centered(values), atol=2e-3)
    return solution


def centered(scores: Any) -> Any:
    return np.asarray(scores) - np.asarray(scores).mean(1, keepdims=True)


def classes_of(dense: Any) -> Any:
    """Return labels that depend on the features, and on noise."""
    noise = np.random.default_rng(0)
    return (dense @ noise.normal(size=(dense.shape[1], LABELS)) + noise.gumbel(size=(TEXTS, LABELS)) / 2).argmax(1)


@pytest.fixture(autouse=True)
def few_strengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_bag, "INVERSE_STRENGTHS", (1.0, 10.0))


def test_the_solution_is_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    strengths, losses = (0.1, 1.0, 10.0, 100.0), []
    monkeypatch.setattr(ngram_bag, "INVERSE_STRENGTHS", strengths)
    bag = NgramBag(LABELS, buckets=64)
    batches, dense = draw(bag)
    solution = check(bag, batches, dense, classes_of(dense))
    for strength in strengths:
        monkeypatch.setattr(ngram_bag, "INVERSE_STRENGTHS", (strength,))
        losses.append(float(solved(bag, batches, classes_of(dense)).loss))
    rises = [strength for strength, loss, after in zip(strengths, losses, losses[1:], strict=False) if after >= loss]
    assert solution.strength == [*rises, strengths[-1]][0]


def test_the_memory_of_a_chunk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of any number of texts give the same weights."""
    bag = NgramBag(LABELS, buckets=64)
    batches, dense = draw(bag)
    solved(bag, batches, classes_of(dense))
    weight = bag.weight.clone()
    for texts in (1, 17):
        monkeypatch.setattr(ngram_bag, "MAX_CHUNK_TEXTS", texts)
        solved(bag, batches, classes_of(dense))
        torch.testing.assert_close(bag.weight, weight, rtol=0, atol=1e-5)


def test_weights_of_classes_and_overlaps_of_pairs_are_solved() -> None:
    bag = PairBag(LABELS, buckets=1 << 12)
    batches, dense = draw(bag, texts=2)
    assert dense.shape[1] == len(bag.weight) + 4
    check(bag, batches, dense, classes_of(dense), weights=torch.tensor([0.5, 1.0, 2.0]))
    assert bag.overlap.abs().sum() > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("share", "norm", "strengths"), [(1.0, 1.0, (10.0, 100.0)), (0.0, 3.0, (0.1, 1.0)), (0.5, 0.1, (10.0, 100.0))]
)
def test_vectors_are_features_beside_ngrams(
    share: float, norm: float, strengths: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are centered, and have one of three norms."""
    monkeypatch.setattr(ngram_bag, "INVERSE_STRENGTHS", strengths)
    bag, values = NgramBag(LABELS, buckets=64), torch.randn(TEXTS, 5, generator=torch.Generator().manual_seed(2)) + 3
    batches, dense = draw(bag)
    x = (values - values.mean(0)).double().numpy()
    both = np.concatenate((dense, x / np.sqrt((x * x).sum(1).mean())), axis=1)
    weights = np.repeat([1 - share, share], [dense.shape[1], 5])
    layer = torch.nn.Linear(5, LABELS)
    solution = check(bag, batches, both, classes_of(both * weights), others=(values, layer))
    assert solution.norm == norm


def test_several_labels_are_independent() -> None:
    bag = NgramBag(2, buckets=64)
    batches, dense = draw(bag)
    gold = np.stack([classes_of(dense) == 0, classes_of(dense) != 1], axis=1)
    solution, scores = solved(bag, batches, gold), scores_of(bag, batches)
    models = [LogisticRegression(C=solution.strength, tol=1e-9, max_iter=10_000) for _ in range(2)]
    expected = np.stack(
        [model.fit(dense, x).decision_function(dense) for model, x in zip(models, gold.T, strict=True)], axis=1
    )
    lines = [np.polyfit(x, y, 1) for x, y in zip(expected.T, scores.numpy().T, strict=True)]
    assert lines[0][0] == pytest.approx(lines[1][0], rel=1e-3)  # one scale, and a shift for each label
    for x, y, line in zip(expected.T, scores.numpy().T, lines, strict=True):
        np.testing.assert_allclose(y, np.polyval(line, x), atol=2e-3)


def test_ngrams_of_characters_equal_those_of_scikit_learn() -> None:
    """Features are TF-IDF of words, pairs of words, and n-grams of characters within words and their borders."""
    draws = np.random.default_rng(0)
    words = ["".join(draws.choice([*"abcé"], size=size)) for size in (1, 1, 2, 3, 4, 5, 7, 9)] + ["long" * 8]
    texts = [list(draws.choice(words, size=size)) for size in draws.integers(1, 9, TEXTS)]
    forms = sorted({word for text in texts for word in text})
    lexicon = Lexicon.train(dict.fromkeys(forms, 1), character_ngrams=5)
    keys = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(lexicon.encode(text).keys) for text in texts], batch_first=True
    )
    bag = NgramBag(LABELS, buckets=1 << 20, characters=True)
    present = torch.zeros(bag.num_rows).index_add_(0, *ones_of(bag.ngrams(keys)))
    bag.weigh_by_idf(present, TEXTS, min_texts=1)
    bag.remove_unweighted()
    ids, values = bag.terms(keys)
    dense = torch.zeros(TEXTS, len(bag.weight)).scatter_add_(1, ids, values).double().numpy()
    joined = [" ".join(text) for text in texts]
    vectorizers = (
        (1 - CHARACTER_SHARE, TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), binary=True)),
        (CHARACTER_SHARE, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), binary=True)),
    )
    expected = sum(share * (x @ x.T).toarray() for share, x in ((s, v.fit_transform(joined)) for s, v in vectorizers))
    np.testing.assert_allclose(dense @ dense.T, expected, atol=1e-5)
    order = torch.arange(TEXTS)
    check(bag, [(order[25:], (keys[25:],)), (order[:25], (keys[:25],))], dense, classes_of(dense))


def ones_of(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers except 0, and a one for each."""
    return ids[ids > 0], torch.ones(int((ids > 0).sum()))


def test_labels_with_one_distinct_text_are_solved() -> None:
    """All texts of a label are in one fold, so there is no calibration of shifts."""
    bag, keys = NgramBag(2, buckets=64), torch.tensor([[1, 2], [3, 4]] * 10)
    bag.weigh(torch.ones(bag.num_rows))
    gold = torch.tensor([0, 1] * 10)
    targets = gold.to(torch.uint16)  # the type of the ids of 257 labels or more
    solve(bag, [(torch.arange(20), (keys,))], targets, gold, weights=None, multiple=False)
    assert torch.equal(bag(keys).argmax(1), gold)


@pytest.mark.parametrize("kind", ["classes", "several", "vectors"])
def test_many_labels_are_solved_in_single_precision(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The logits are close to those in double precision."""
    bag = NgramBag(LABELS, buckets=64)
    batches, features = draw(bag)
    gold = classes_of(features)
    targets = np.eye(LABELS, dtype=bool)[gold] if kind == "several" else gold
    values = torch.randn(TEXTS, 5, generator=torch.Generator().manual_seed(2))
    layer = torch.nn.Linear(5, LABELS) if kind == "vectors" else None
    results = []
    for bound in (LABELS, LABELS - 1):
        monkeypatch.setattr(ngram_bag, "MAX_EXACT_LABELS", bound)
        solution = solved(bag, batches, targets, dense=None if layer is None else (values, layer))
        scores = scores_of(bag, batches) + (0 if layer is None else layer(values).detach())
        results.append([centered(part) for part in (solution.logits.double(), scores)])
    assert solution.logits.dtype == torch.float32
    for exact, single in zip(*results, strict=True):
        np.testing.assert_allclose(single, exact, atol=0.05)


def test_cross_validation_reports_its_progress() -> None:
    bag, shares = NgramBag(LABELS, buckets=64), []
    batches, dense = draw(bag)
    targets, folds = torch.from_numpy(classes_of(dense)), torch.from_numpy(FOLDS)
    solve(bag, batches, targets, folds, weights=None, multiple=False, report=lambda name, share: shares.append(share))
    assert shares == sorted(shares)
    assert 10 <= len(shares) <= 20 * max(shares) + 1
