"""Heads of taggers equal the enumeration of all paths with their probabilities."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ensue.models.tag_heads import PADDING, CRFTagHead, SoftmaxTagHead, TagHead, TagHeads, ViterbiTagHead
from ensue.nn import LegalTags
from ensue.text.labels import Labels

same = torch.testing.assert_close
D, K = 4, 5
LENGTHS = [4, 0, 1, 3]
MASK = torch.arange(4) < torch.tensor(LENGTHS).unsqueeze(1)
LABELS = Labels(["O", "B-X"], scheme="bio", tag_scheme="iobes")  # O B-X E-X I-X S-X
SENTENCES = [[0, 1, 2, 0], [4], [], [4, 0, 0, 0, 0], [1, 3, 3, 3, 2], [0]]
LEGAL_NEXT = {"<": [0, 1, 4], 0: [0, 1, 4, ">"], 1: [2, 3], 2: [0, 1, 4, ">"], 3: [2, 3], 4: [0, 1, 4, ">"]}
"""The tags that may follow each tag in iobes; < and > are the ends."""


def legality() -> LegalTags:
    transitions = LABELS.legal_transitions()
    assert transitions is not None
    return LegalTags(*map(torch.from_numpy, transitions))


def softmax(**options: float) -> SoftmaxTagHead:
    return SoftmaxTagHead(D, K, **options)


def bigrams(legal: bool = True, **options: float) -> ViterbiTagHead:
    head = ViterbiTagHead(D, K, legal=legality() if legal else None, **options)
    head.count_bigrams(SENTENCES)
    return head


def crf(legal: bool = True) -> CRFTagHead:
    head = CRFTagHead(D, K, legal=legality() if legal else None)
    for parameter in head.crf.parameters():
        torch.nn.init.normal_(parameter)
    return head


HEADS: dict[str, Callable[[], TagHead]] = {
    "softmax": softmax, "viterbi": bigrams, "viterbi anything goes": lambda: bigrams(legal=False, weight=0.7),
    "viterbi without bigrams": lambda: bigrams(weight=0.0), "crf": crf, "crf anything goes": lambda: crf(legal=False),
}  # fmt: skip
EVERY_HEAD = pytest.mark.parametrize("name", HEADS)


def built(name: str) -> TagHead:
    torch.manual_seed(0)
    head = HEADS[name]()
    torch.nn.init.normal_(head.projection.bias)
    return head


def features(seed: int = 1, lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(len(lengths), max(lengths), D, generator=torch.Generator().manual_seed(seed))


def gold() -> Tensor:
    tags = torch.full(MASK.shape, PADDING)
    for row, path in enumerate(([0, 1, 2, 4], [], [4], [1, 3, 2])):
        tags[row, : len(path)] = torch.tensor(path, dtype=torch.int64)
    return tags


def log_bigrams(legal: bool, weight: float) -> dict[tuple[object, object], float]:
    """Return `weight · log P(next | before)` of all bigrams of the sentences, with 1 added to each count."""
    tags: list[object] = [0, 1, 2, 3, 4]
    logs = {}
    for before in ["<", *tags]:
        following = LEGAL_NEXT[before] if legal else tags + ([">"] if before != "<" else [])  # type: ignore[index]
        counts = dict.fromkeys(following, 1)
        for sentence in SENTENCES:
            for left, right in itertools.pairwise(["<", *sentence, ">"]) if sentence else ():
                if left == before:
                    counts[right] += 1
        for after, count in counts.items():
            logs[before, after] = weight * math.log(count / sum(counts.values()))
    return logs


def score(name: str, head: TagHead, emissions: list[list[float]], path: tuple[int, ...]) -> float:
    """Return the score of a path by the head's definition, -inf for a forbidden path."""
    steps = list(itertools.pairwise(["<", *path, ">"]))
    if name.endswith("goes") or name == "softmax" or all(b in LEGAL_NEXT[a] for a, b in steps):  # type: ignore[index]
        total = sum(emissions[t][tag] for t, tag in enumerate(path))
    else:
        return -math.inf
    if isinstance(head, ViterbiTagHead):
        table = log_bigrams(legal=head.legal is not None, weight=head.weight)
        norms = [math.log(sum(map(math.exp, row))) for row in emissions]
        return total - sum(norms) + sum(table[step] for step in steps)
    if isinstance(head, CRFTagHead):
        total += head.crf.start[path[0]].item() + head.crf.end[path[-1]].item()
        total += sum(head.crf.transitions[a, b].item() for a, b in itertools.pairwise(path))
    return total


def enumerated(name: str, head: TagHead, emissions: Tensor) -> dict[tuple[int, ...], float]:
    rows = emissions.double().tolist()
    return {path: score(name, head, rows, path) for path in itertools.product(range(K), repeat=len(rows))}


@EVERY_HEAD
def test_best_path_and_marginals_equal_the_enumeration(name: str) -> None:
    head = built(name)
    emissions = head.emissions(features()).detach()
    best, shares = head.best(emissions, MASK), head.marginals(emissions, MASK)
    for b, length in enumerate(LENGTHS):
        if not length:
            continue
        scores = enumerated(name, head, emissions[b, :length])
        expected = max(scores, key=scores.__getitem__)
        assert best[b, :length].tolist() == list(expected)
        one = head.decode_sentence(emissions[b, :length].numpy(), with_posterior=True)
        assert one.tags.tolist() == list(expected)
        weights = torch.tensor(list(scores.values()), dtype=torch.float64).softmax(0)
        counted = torch.zeros(length, K, dtype=torch.float64)
        for path, weight in zip(scores, weights, strict=True):
            counted[torch.arange(length), list(path)] += weight
        same(shares[b, :length].double(), counted, rtol=1e-4, atol=1e-6)
        same(torch.from_numpy(one.posterior.marginals).double(), counted, rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(2)
@EVERY_HEAD
def test_the_loss_of_teacher_probabilities_equals_its_definition(name: str) -> None:
    """It is the expected surprisal of tags, or, in a CRF, of legal paths drawn by the teacher."""
    head = built(name)
    shares = torch.rand(*MASK.shape, K, generator=torch.Generator().manual_seed(3)).softmax(-1) * MASK.unsqueeze(-1)
    shares[0, 0] = torch.eye(K)[0]
    emissions = head.emissions(features()).detach().requires_grad_()
    loss = head.nats(emissions, shares, MASK)
    expected = torch.zeros((), dtype=torch.float64)
    for b, length in enumerate(LENGTHS):
        row_emissions, teacher = emissions[b, :length].double(), shares[b, :length].double()
        if not isinstance(head, CRFTagHead):
            expected = expected - (teacher * row_emissions.log_softmax(-1)).sum()
        elif length:
            chain = enumerated(name, head, row_emissions.detach())
            paths = torch.tensor([path for path, value in chain.items() if value > -math.inf])
            places = torch.arange(length)
            fixed = torch.tensor([value for value in chain.values() if value > -math.inf], dtype=torch.float64)
            scores = row_emissions[places, paths].sum(1)
            scores = scores + (fixed - scores).detach()
            drawn = teacher[places, paths].prod(1)
            expected = expected - (drawn / drawn.sum() * scores.log_softmax(0)).sum()
    same(loss.double(), expected, rtol=1e-5, atol=1e-5)
    same(*(torch.autograd.grad(part, emissions)[0] for part in (loss, expected)), rtol=1e-4, atol=1e-6)


def test_a_certain_teacher_of_a_crf_gives_the_gradients_of_labels() -> None:
    """This includes the scores of pairs and ends."""
    head = built("crf")
    certain = torch.nn.functional.one_hot(gold().clamp(min=0), K).float() * MASK.unsqueeze(-1)
    gradients = []
    for tags in (gold(), certain):
        head.zero_grad()
        head.total_nats(features(), tags, MASK).backward()
        gradients.append([parameter.grad for parameter in head.parameters()])
    same(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("kind", [SoftmaxTagHead, ViterbiTagHead])
def test_the_loss_of_a_softmax_equals_its_formula(kind: type[SoftmaxTagHead], smoothing: float) -> None:
    """It is `-log P(tag)`, smoothed over all tags; bigrams do not matter."""
    torch.manual_seed(0)
    head, h, tags = kind(D, K, label_smoothing=smoothing), features(), gold()
    expected = 0.0
    for b, length in enumerate(LENGTHS):
        for t in range(length):
            logits = (head.projection.weight @ h[b, t] + head.projection.bias).tolist()
            nats = [math.log(sum(map(math.exp, logits))) - logit for logit in logits]
            expected += (1 - smoothing) * nats[int(tags[b, t])] + smoothing * sum(nats) / K
    assert head.total_nats(h, tags, MASK).item() == pytest.approx(expected, rel=1e-5)


@EVERY_HEAD
def test_padding_changes_neither_the_loss_nor_its_gradients(name: str) -> None:
    head, results = built(name), []
    for seed in (2, 3):
        h = torch.where(MASK.unsqueeze(2), features(), 3 * features(seed)).requires_grad_()
        loss = head.total_nats(h, gold(), MASK)
        trained = [parameter for parameter in head.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(loss, [h, *trained])
        assert not gradients[0][~MASK].any()
        results.append((loss, gradients))
    same(results[0], results[1])


@given(name=st.sampled_from(list(HEADS)), length=st.integers(0, 12), seed=st.integers(0, 2**32), scale=st.floats(0, 40))
def test_decode_sentence_returns_the_best_path(name: str, length: int, seed: int, scale: float) -> None:
    head, random = built(name), torch.Generator().manual_seed(seed)
    emissions = scale * torch.randn(1, length, K, generator=random) + torch.randn((), generator=random) * 100
    path = head.decode_sentence(emissions[0].numpy()).tags
    assert path.shape == (length,)
    expected = head.best(emissions, None)[0].tolist()
    if path.tolist() != expected:  # the scores of the two paths differ only by rounding
        rows = emissions[0].double().tolist()
        scores = [score(name, head, rows, tuple(tags)) for tags in (path.tolist(), expected)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("legal", [False, True])
def test_scores_of_bigrams_equal_their_counts(legal: bool, weight: float) -> None:
    """Illegal bigrams have probability 0. A second count replaces the first."""
    head, expected = bigrams(legal, weight=weight), log_bigrams(legal, weight)
    for _ in range(2):
        for before, row in [("<", head.get_parameter("start")), *enumerate(head.get_parameter("transitions"))]:
            for after in range(K):
                assert row[after].item() == pytest.approx(expected.get((before, after), -math.inf), abs=1e-6)
        for tag, value in enumerate(head.get_parameter("end").tolist()):
            assert value == pytest.approx(expected.get((tag, ">"), -math.inf), abs=1e-6)
        head.count_bigrams(SENTENCES)


def test_bigrams_are_saved_and_not_trained() -> None:
    head, other = bigrams(), ViterbiTagHead(D, K)
    other.load_state_dict(head.state_dict())
    h = features()
    emissions = head.emissions(h)
    assert other.best(other.emissions(h), MASK).tolist() == head.best(emissions, MASK).tolist()
    assert {name for name, p in head.named_parameters() if p.requires_grad} == {"projection.weight", "projection.bias"}


@EVERY_HEAD
def test_heads_start_from_the_frequencies_of_tags(name: str) -> None:
    """At features of zero each tag has its share of the training data, with 1 added to each count."""
    head = built(name)
    head.start_from_counts(np.array([7, 0, 2, 0, 1]))
    shares = head.emissions(torch.zeros(1, 1, D)).softmax(-1).flatten()
    same(shares, torch.tensor([8, 1, 3, 1, 2]) / 15)
    if isinstance(head, CRFTagHead) and head.crf.legal is None:
        fresh = CRFTagHead(D, K)
        fresh.start_from_counts(np.array([7, 0, 2, 0, 1]))
        zeros = torch.zeros(1, 3, D)
        same(fresh.marginals(fresh.emissions(zeros), None)[0, 1], shares)
        nats = fresh.total_nats(zeros, torch.tensor([[0, 2, 0]]), None)
        assert nats.item() == pytest.approx(-math.log(8 * 3 * 8 / 15**3), rel=1e-5)


def test_a_new_head_prefers_no_tag() -> None:
    for head in (softmax(), CRFTagHead(D, K)):
        assert not head.emissions(torch.zeros(1, 1, D)).any()
        assert head.projection.weight.abs().max() <= math.sqrt(6 / (D + K))  # Glorot & Bengio 2010


@EVERY_HEAD
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_inputs_may_be_empty(name: str, shape: tuple[int, int]) -> None:
    head, h = built(name), torch.zeros(*shape, D)
    mask = torch.zeros(shape, dtype=torch.bool)
    for mask_or_none in (None, mask):
        loss = head.total_nats(h, torch.full(shape, PADDING), mask_or_none)
        assert loss.item() == 0
        loss.backward()
        assert head.best(head.emissions(h), mask_or_none).shape == shape
        assert head.marginals(head.emissions(h), mask_or_none).shape == (*shape, K)
    assert head.decode_sentence(np.zeros((0, K), np.float32)).tags.tolist() == []


def test_combined_heads_equal_single_heads() -> None:
    parts: list[TagHead] = [softmax(), CRFTagHead(D, K, legal=legality()), SoftmaxTagHead(D, 2)]
    heads = TagHeads(parts)
    h = torch.randn(4, 4, D)
    tags = torch.stack([torch.randint(0, head.num_tags, (4, 4)) for head in parts], -1)
    tags = tags.masked_fill(~MASK.unsqueeze(-1), PADDING)
    same(heads.total_nats(h, tags, MASK), sum(p.total_nats(h, tags[..., n], MASK) for n, p in enumerate(parts)))
    emissions = heads.emissions(h)
    assert emissions.shape == (4, 4, heads.num_tags)
    alone = [head.emissions(h) for head in parts]
    best = torch.stack([head.best(scores, MASK) for head, scores in zip(parts, alone, strict=True)], -1)
    same(heads.best(emissions, MASK), best)
    shares = [head.marginals(scores, MASK) for head, scores in zip(parts, alone, strict=True)]
    same(heads.marginals(emissions, MASK), torch.cat(shares, -1))
    path = heads.decode_sentence(emissions[0].detach().numpy(), with_posterior=True)
    assert path.tags.tolist() == best[0].tolist()
    expected = heads.marginals(emissions.detach(), MASK)[0]
    for posterior in (path.posterior, heads.posteriors(emissions.detach(), LENGTHS)[0]):
        assert posterior is not None
        same(torch.from_numpy(posterior.marginals).float(), expected, atol=1e-5, rtol=0)
