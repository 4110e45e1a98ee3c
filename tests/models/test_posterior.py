"""The probabilities of spans and paths equal sums over the enumeration of all paths."""

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from ensue.errors import EnsueError
from ensue.models.tag_heads import CRFTagHead, SoftmaxTagHead, TagHead, TagHeads, ViterbiTagHead
from ensue.nn import ChainScores, LegalTags, Posterior, k_best, log_partition
from ensue.tasks.labeling.tagged_sentence import Confidence
from ensue.text.label_columns import LabelHead, NestedLabels
from ensue.text.labels import Labels
from ensue.text.schemes import SCHEMES, Scheme, encode, encode_overlapping, spans, tag_set

LENGTHS = [3, 0, 1, 2]


def heads(labels: Labels) -> Iterator[TagHead]:
    """Yield a head of each kind with random scores of tag pairs."""
    torch.manual_seed(len(labels))
    legality = labels.legal_transitions()
    legal = None if legality is None else LegalTags(*map(torch.from_numpy, legality))
    crf, free, bigrams = (
        CRFTagHead(4, len(labels), legal=legal),
        CRFTagHead(4, len(labels)),
        ViterbiTagHead(4, len(labels), legal=legal, weight=0.5),
    )
    for head in (crf, free):
        for parameter in head.crf.parameters():
            torch.nn.init.normal_(parameter)
    bigrams.count_bigrams([[0, 1], [0, 0, 0]])
    yield from (SoftmaxTagHead(4, len(labels)), crf, free, bigrams)


def shares_of_paths(head: TagHead, emissions: torch.Tensor) -> dict[tuple[int, ...], float]:
    """Return the probabilities of all paths of a sentence (T, K): exponentials of scores, divided by their sum."""
    scores, tables = head.scores(emissions.double()).numpy(), head.tables()
    weights = {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        total = sum(scores[t, tag] for t, tag in enumerate(path))
        if tables is not None:
            total += tables.start[path[0]] + tables.end[path[-1]]
            total += sum(float(tables.transitions[pair]) for pair in itertools.pairwise(path))
        weights[path] = float(np.exp(total))
    total_weight = sum(weights.values())
    return {path: share / total_weight for path, share in weights.items()}


def posteriors_of(head: TagHead) -> Iterator[tuple[torch.Tensor, Posterior, Posterior]]:
    """Yield emissions of sentences with their posteriors, computed in a batch and alone."""
    emissions = head.emissions(2 * torch.randn(len(LENGTHS), max(LENGTHS), 4)).detach()
    together = head.posteriors(emissions, LENGTHS)
    for row, length, in_batch in zip(emissions, LENGTHS, together, strict=True):
        alone = head.decode_sentence(row[:length].numpy(), with_posterior=True).posterior
        assert alone is not None
        yield row[:length], in_batch, alone


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_probabilities_of_spans_equal_sums_over_paths(scheme: Scheme) -> None:
    """All possible spans of each scheme are tested."""
    labels = Labels(tag_set("XY" if scheme != "iobes" else "X", scheme), scheme=scheme, tag_scheme=scheme)
    for head in heads(labels):
        for emissions, *both in posteriors_of(head):
            counted: dict[tuple[str, int, int], float] = {}
            for path, share in shares_of_paths(head, emissions).items() if len(emissions) else ():
                for span in spans([labels.tags.symbols[tag] for tag in path]):
                    counted[span] = counted.get(span, 0.0) + share
            for span, expected in counted.items():
                tags = labels.tags_of_spans(labels.spans(encode([span], len(emissions), scheme)))
                for posterior in both:
                    assert posterior.spans(*tags) == pytest.approx([expected], rel=1e-4, abs=1e-7), (head, span)


def test_probabilities_of_several_spans_equal_those_of_single_spans() -> None:
    labels = Labels(["O", "B-X", "B-Y"], scheme="bio", tag_scheme="iobes")
    for head in heads(labels):
        posterior = head.posteriors(torch.randn(1, 9, len(labels)), [9])[0]
        tag_names = ["B-X", "I-X", "B-X", "O", "B-Y", "I-Y", "I-Y", "B-Y", "B-X"]
        places, within, goes_on = labels.tags_of_spans(labels.spans(tag_names))
        alone = [posterior.spans([place], part[None], goes_on)[0] for place, part in zip(places, within, strict=True)]
        np.testing.assert_allclose(posterior.spans(places, within, goes_on), alone)
        assert posterior.spans(*labels.tags_of_spans(labels.spans(["O"] * 9))).tolist() == []


@pytest.mark.parametrize("count", [1, 4, 1000])
def test_best_paths_equal_the_most_probable_of_the_enumeration(count: int) -> None:
    for head in heads(Labels(["O", "B-X"], scheme="bio", tag_scheme="iobes")):
        for emissions, *both in posteriors_of(head):
            shares = shares_of_paths(head, emissions) if len(emissions) else {(): 1.0}
            expected = sorted((share for share in shares.values() if share), reverse=True)[:count]
            for posterior in both:
                best = posterior.best(count)
                assert [share for _, share in best] == pytest.approx(expected, rel=1e-4)
                assert [shares[tuple(path.tolist())] for path, _ in best] == pytest.approx(expected, rel=1e-4)
            assert both[0].best(1)[0][0].tolist() == head.decode_sentence(emissions.numpy()).tags.tolist()


@pytest.mark.parametrize("scale", [1.0, 300.0, 3000.0])
def test_best_paths_of_one_sentence_equal_those_of_a_batch(scale: float) -> None:
    """Products of exponentials would underflow at the larger scales."""
    for head in heads(Labels(["O", "B-X"], scheme="bio", tag_scheme="iobes")):
        if (chain := head.chain()) is None:
            continue
        emissions = scale * torch.randn(2, 6, head.num_tags, dtype=torch.float64)
        wide = [part.detach().double() for part in chain]
        scores = head.scores(emissions)
        paths, totals = k_best(scores, *wide, k=5)
        log_partitions = log_partition(scores, *wide)
        for b in range(2):
            posterior = Posterior.of(scores[b].numpy(), head.tables())
            for rank, (path, share) in enumerate(posterior.best(5)):
                assert path.tolist() == paths[b, rank].tolist()
                assert share == pytest.approx(float((totals[b, rank] - log_partitions[b]).exp()), rel=1e-6, abs=1e-300)
            assert posterior.marginals.sum(1) == pytest.approx(np.ones(6))


def test_probabilities_of_overlapping_spans_equal_sums_over_paths_of_all_heads() -> None:
    names = {key: ["O", f"B-{key}", f"I-{key}"] for key in ("NP", "NP+", "X")}
    parts = [LabelHead("class", key, Labels(tags, scheme="bio", tag_scheme="bio")) for key, tags in names.items()]
    labels = NestedLabels(parts)
    singles = [list(heads(part.labels))[1] for part in parts]
    for parameter in itertools.chain.from_iterable(head.parameters() for head in singles):
        torch.nn.init.normal_(parameter)
    model, T = TagHeads(singles), 2
    emissions = model.emissions(torch.randn(T, 4)).detach()
    one = model.decode_sentence(emissions.numpy(), with_posterior=True)
    assert one.posterior is not None
    emissions_of_heads = emissions.split([3] * len(parts), -1)
    of_heads = [shares_of_paths(head, scores) for head, scores in zip(singles, emissions_of_heads, strict=True)]
    combined = [
        (np.transpose([path for path, _ in chosen]).tolist(), float(np.prod([share for _, share in chosen])))
        for chosen in itertools.product(*(of_head.items() for of_head in of_heads))
    ]
    best = sorted(combined, key=lambda item: -item[1])[:7]
    for (expected_path, share), (path, probability) in zip(best, one.posterior.best(7), strict=True):
        assert path.tolist() == expected_path
        assert probability == pytest.approx(share, abs=1e-5)
    expected: dict[object, float] = {}
    for path, share in combined:
        for span in labels.spans(labels.decode(path)):
            expected[span] = expected.get(span, 0.0) + share
    all_spans = sorted(expected, key=str)
    for span in all_spans:
        confidence = Confidence.of(labels, encode_overlapping([span], T, "bio"), one.posterior)
        assert confidence.spans == pytest.approx([expected[span]], abs=1e-5)
    empty = model.decode_sentence(np.zeros((0, 9), np.float32), with_posterior=True).posterior
    assert empty is not None
    assert Confidence.of(labels, [], empty) == ([], [], [])


def chain(tags: int) -> ChainScores:
    """Return random scores of pairs and ends."""
    draws = np.random.default_rng(tags)
    return ChainScores(*(draws.normal(size=size) for size in (tags, (tags, tags), tags)))


@pytest.mark.slow
def test_best_paths_of_heads_are_found_where_products_underflow() -> None:
    """Each probability is above 1e-300, but their products would be 0."""
    emissions = np.random.default_rng(0).normal(size=(2, 3_000, 3)) / 2
    posteriors = [Posterior.of(scores, chain(3)) for scores in emissions]
    singles = [posterior.best(5) for posterior in posteriors]
    shares = np.log([[share for _, share in single] for single in singles])
    assert shares.min() > -700
    assert shares.sum(0).max() < -750
    ranks = sorted(itertools.product(range(5), repeat=2), key=lambda pair: -shares[[0, 1], pair].sum())
    for (path, _), pair in zip(Posterior.concatenate(posteriors).best(5), ranks, strict=False):
        for column, (single, rank) in enumerate(zip(singles, pair, strict=True)):
            assert path[:, column].tolist() == single[rank][0].tolist()


@pytest.mark.slow
def test_the_memory_for_many_spans_is_limited() -> None:
    """A table of tag pairs for each span would take 70 MB, and intermediate results several times as much."""
    posterior = Posterior.of(np.zeros((4, 40)), chain(40))
    count, goes_on = 6_000, np.eye(40, dtype=bool)
    expected = posterior.spans([(1, 3)], np.ones((1, 40), bool), goes_on)
    tracemalloc.start()
    probabilities = posterior.spans([(1, 3)] * count, np.ones((count, 40), bool), goes_on)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(probabilities) == set(expected)
    assert peak_bytes < 70 << 20


def test_paths_that_need_too_much_memory_are_refused() -> None:
    posterior = Posterior.of(np.zeros((100_000, 40)), None)._replace(tables=chain(40))
    with pytest.raises(EnsueError, match="100 best label sequences of 100,000 words need more than 1 GB"):
        posterior.best(100)


@pytest.mark.filterwarnings("error")
def test_words_without_a_possible_tag_have_no_path() -> None:
    never = np.full((2, 3), -np.inf)
    for scores in (never, np.vstack((np.zeros((1, 3)), never[:1]))):
        assert Posterior.of(scores, chain(3)).best(3) == []
