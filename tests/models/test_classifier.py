"""Classifiers: losses equal their formulas, batches do not matter; pairs, segments, bags of n-grams."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.models.build_text import build_classifier
from ensue.models.classifier import Classifier, PooledTexts
from ensue.models.encoders import build_encoder
from ensue.models.modules import count_parameters
from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.word_features import WordFeatures
from ensue.models.word_specification import ClassHeadSpecification, FeatureSpecification
from ensue.nn import MeanPooling
from models import BY_NAME, ENCODER_DIRECTIONS, TEXTS, lexicon_of, one_way, reader, words_of

same = torch.testing.assert_close
FEATURES = FeatureSpecification(
    d_words=5, dropout_words=0.0, characters="cnn", d_character=3, d_characters=4, affixes=2, d_affix=2
)
LEXICON = lexicon_of(characters=True, longest_affix=2)
POOLINGS = ["max", "last", "attention", "mean"]
"""All poolings, concatenated."""
BAG = {"ngrams": 2, "ngram_buckets": 512, "dropout_ngrams": 0.0}
K = 3


def build(
    encoder: str = "lstm", bidirectional: bool = False, *, head: dict[str, Any] | None = None, **options: Any
) -> Classifier:
    torch.manual_seed(0)
    specification = reader(encoder) if bidirectional else one_way(encoder)
    classifier = build_classifier(
        FEATURES, head=ClassHeadSpecification(**head or {}), lexicon=LEXICON, num_labels=K, **specification, **options
    )
    if classifier.bag is not None:
        nn.init.normal_(classifier.bag.weight)
        nn.init.normal_(classifier.bag.bias)
        classifier.bag.ratio.data.uniform_(0, 2)
    return classifier


def logits_of(classifier: Classifier, logits: Tensor) -> Classifier:
    """Replace `forward` of a classifier by constant logits."""
    classifier.forward = lambda texts: logits  # type: ignore[method-assign]
    return classifier


LOGITS = torch.tensor([[0.3, -1.2, 2.0], [0.0, 0.5, -0.5], [-3.0, 1.0, 1.0], [4.0, 0.0, 0.1]])
WEIGHTS = torch.tensor([0.5, 2.0, 1.25])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_loss_of_one_label_equals_its_formula(weights: Tensor | None, smoothing: float) -> None:
    """The loss is `-w log p` of the label; smoothing distributes a share over all labels, each with its weight."""
    targets, w = [2, 0, 1, 1], [1.0] * K if weights is None else weights.tolist()
    classifier = logits_of(build(head={"label_smoothing": smoothing}), LOGITS)
    expected = 0.0
    for target, row in zip(targets, LOGITS.tolist(), strict=True):
        nats = [math.log(sum(map(math.exp, row))) - logit for logit in row]
        expected += (1 - smoothing) * w[target] * nats[target]
        expected += smoothing / K * sum(weight * each for weight, each in zip(w, nats, strict=True))
    loss = classifier.loss((), torch.tensor(targets), weights)
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert loss.count == 4


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_loss_of_several_labels_equals_its_formula(weights: Tensor | None, smoothing: float) -> None:
    """Each label has the loss `-(w t log σ + (1 - t) log (1 - σ))`; smoothing moves t towards 1/2."""
    targets = [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]
    w = [1.0] * K if weights is None else weights.tolist()
    classifier = logits_of(build(head={"label_smoothing": smoothing}, multiple=True), LOGITS)
    expected = 0.0
    for row, row_targets in zip(LOGITS.tolist(), targets, strict=True):
        for weight, logit, target in zip(w, row, row_targets, strict=True):
            t, p = (1 - smoothing) * target + smoothing / 2, 1 / (1 + math.exp(-logit))
            expected -= weight * t * math.log(p) + (1 - t) * math.log(1 - p)
    loss = classifier.loss((), torch.tensor(targets, dtype=torch.float32), weights)
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert loss.count == 4


def test_probabilities_are_a_softmax_or_sigmoids() -> None:
    single, several = build().probabilities(LOGITS), build(multiple=True).probabilities(LOGITS)
    for row, one, other in zip(LOGITS.tolist(), single.tolist(), several.tolist(), strict=True):
        total = sum(map(math.exp, row))
        assert one == pytest.approx([math.exp(logit) / total for logit in row])
        assert other == pytest.approx([1 / (1 + math.exp(-logit)) for logit in row])


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("head", [{}, {"d_hidden": 4}, {"pooling": [], **BAG}, BAG], ids=str)
def test_a_classifier_starts_from_the_frequencies_of_labels(head: dict[str, Any], multiple: bool) -> None:
    """Pooled features, scores of n-grams and the hidden layer are zero in this test."""
    classifier = build(head=head, multiple=multiple)
    shares = torch.tensor([0.7, 0.1, 0.2])
    if classifier.bag is not None:
        classifier.bag.bias.data.zero_()
    classifier.start_from_frequencies(shares)
    keys = torch.zeros(1, 2, dtype=torch.int64)
    texts = PooledTexts(torch.zeros(1, 0 if classifier.pooling is None else classifier.pooling.d_out), keys)
    if classifier.head is None:
        assert classifier.bag is not None
        logits = classifier.bag(keys)
    else:
        for layer in classifier.head[:-1]:
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)
        logits = classifier.compute_logits([texts])
    same(classifier.probabilities(logits), shares.unsqueeze(0))


def test_the_hidden_layer_equals_its_formula() -> None:
    classifier = build(head={"d_hidden": 4, "pooling": ["mean"], "dropout": 0.5}).eval()
    assert classifier.head is not None
    first, last = (layer for layer in classifier.head if isinstance(layer, nn.Linear))
    texts = PooledTexts(torch.randn(2, 6), torch.zeros(2, 3, dtype=torch.int64))
    h = (texts.vector @ first.weight.T + first.bias).clamp(min=0)
    same(classifier.compute_logits([texts]), h @ last.weight.T + last.bias)
    classifier.train()
    assert not classifier.compute_logits([texts]).equal(classifier.compute_logits([texts]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("encoder", "bidirectional"), ENCODER_DIRECTIONS)
def test_scores_and_losses_do_not_depend_on_the_batch(encoder: str, bidirectional: bool) -> None:
    """One text has no words."""
    classifier = build(encoder, bidirectional, head={"pooling": POOLINGS} | BAG)
    words = words_of(LEXICON, TEXTS)
    together = classifier((words,))
    assert together.shape == (len(TEXTS), K)
    assert together.isfinite().all()
    for row, text in enumerate(TEXTS):
        same(classifier((words_of(LEXICON, [text]),))[0], together[row], rtol=1e-4, atol=1e-5)
    targets = torch.tensor([0, 1, 2, 0, 1])
    full_loss = classifier.loss((words,), targets)
    halves = [classifier.loss((words.slice_rows(rows),), targets[rows]) for rows in (slice(0, 2), slice(2, None))]
    same(halves[0].total + halves[1].total, full_loss.total, rtol=1e-4, atol=1e-5)
    assert halves[0].count + halves[1].count == full_loss.count == 5


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("encoder", "bidirectional"), ENCODER_DIRECTIONS)
def test_every_trainable_parameter_has_a_gradient(encoder: str, bidirectional: bool) -> None:
    """This includes segments, whose states are carried."""
    head = {"pooling": POOLINGS, "d_hidden": 8} | BAG
    for segment in (0, 3) if not bidirectional else (0,):
        classifier = build(encoder, bidirectional, head=head, segment=segment)
        classifier.loss((words_of(LEXICON, TEXTS),), torch.tensor([0, 1, 2, 0, 1])).total.backward()
        trained = [(name, p) for name, p in classifier.named_parameters() if p.requires_grad]
        assert [name for name, p in trained if p.grad is None or not p.grad.any()] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("encoder", BY_NAME)
def test_segments_give_the_logits_of_the_full_text(encoder: str) -> None:
    head = {"pooling": POOLINGS} | BAG
    full = build(encoder, head=head)
    words = words_of(LEXICON, TEXTS)
    expected = full((words,))
    for segment in (1, 3, 8, 100):
        classifier = build(encoder, head=head, segment=segment)
        same(classifier((words,)), expected, rtol=1e-4, atol=1e-5)


def test_gradients_end_at_the_beginning_of_a_segment() -> None:
    """If a segment has one word, only the last word has a gradient."""
    has_gradient = {}
    for segment in (0, 1):
        classifier = build("elman", head={"pooling": ["last"]}, segment=segment)
        classifier.loss((words_of(LEXICON, ["the bird"]),), torch.tensor([0])).total.backward()
        assert classifier.features.words is not None
        grad = classifier.features.words.weight.grad
        assert grad is not None
        has_gradient[segment] = [bool(grad[LEXICON.words.ids[word]].any()) for word in ("the", "bird")]
    assert has_gradient == {0: [True, True], 1: [False, True]}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("d_hidden", [0, 4])
@pytest.mark.parametrize("segment", [0, 2])
def test_pairs_equal_their_formula(d_hidden: int, segment: int) -> None:
    """The head reads `[u; v; |u - v|; u ⊙ v]`. Batches of both sides have different lengths."""
    head = {"pooling": ["mean", "max"], "d_hidden": d_hidden}
    classifier = build("gru", head=head, pair=True, segment=segment).eval()
    first, second = TEXTS, [*TEXTS[1:4], "", "sees"]
    texts = (words_of(LEXICON, first), words_of(LEXICON, second))
    logits = classifier(texts)
    assert classifier.head is not None
    assert classifier.head[1].in_features == 4 * 12
    for row in range(len(first)):
        u, v = (pooled_alone(classifier, part[row]) for part in (first, second))
        together = torch.cat((u, v, (u - v).abs(), u * v))
        same(classifier.head(together), logits[row], rtol=1e-4, atol=1e-5)
    assert not logits.allclose(classifier(texts[::-1]))
    assert classifier.loss(texts, torch.tensor([0, 1, 2, 0, 1])).count == 5


def pooled_alone(classifier: Classifier, text: str) -> Tensor:
    words = words_of(LEXICON, [text])
    h, _ = classifier.layers(classifier.features(words))
    assert classifier.pooling is not None
    return classifier.pooling(h)[0]


def test_scores_of_ngrams_are_added_to_those_of_the_layers() -> None:
    both, alone = build(head=BAG), build(head=BAG | {"pooling": []})
    assert both.bag is not None
    assert alone.bag is not None
    words = words_of(LEXICON, TEXTS)
    assert words.mask is not None
    keys = words.forms.keys[words.numbers] * words.mask
    assert both.head is not None
    h, _ = both.layers(both.features(words), mask=words.mask)
    assert both.pooling is not None
    same(both((words,)), both.head(both.pooling(h, words.mask)) + both.bag(keys))
    same(alone((words,)), alone.bag(keys))
    assert alone.head is None
    alone((words,)).sum().backward()
    assert all(parameter.grad is None for parameter in alone.features.parameters())


def test_dropout_of_words_does_not_change_ngrams() -> None:
    """Only words that the lexicon lacks are unknown to the bag."""
    features = FEATURES.model_copy(update={"dropout_words": 0.99})
    head = ClassHeadSpecification(pooling=[], **BAG)
    classifier = build_classifier(features, head=head, lexicon=LEXICON, num_labels=K, **reader("none"))
    nn.init.normal_(classifier.bag.weight)  # type: ignore[union-attr]
    words = words_of(LEXICON, TEXTS)
    same(classifier.train()((words,)), classifier.eval()((words,)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("segment", [0, 2])
@pytest.mark.parametrize(
    ("encoder", "head"),
    [
        *(pytest.param(*name.values, {"pooling": POOLINGS}, marks=name.marks) for name in BY_NAME),
        *(("lstm", head) for head in (BAG, {"pooling": [], **BAG})),
    ],
)
def test_texts_without_words_have_the_bias_as_logits(encoder: str, head: dict[str, Any], segment: int) -> None:
    """They are alone, or in a batch with a text that has words."""
    classifier = build(encoder, head=head, segment=segment)
    for texts in (["", ""], ["", "the bird"]):
        loss = classifier.loss((words_of(LEXICON, texts),), torch.tensor([0, 1]))
        assert loss.total.isfinite()
        loss.total.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in classifier.parameters())
    empty = classifier((words_of(LEXICON, ["", ""]),))
    expected = 0 if classifier.head is None else classifier.head[-1].bias
    expected = expected + (0 if classifier.bag is None else classifier.bag.bias)
    same(empty, expected.expand(2, K))
    same(classifier((words_of(LEXICON, ["", "the bird"]),))[0], empty[0])


def parts(encoder: str = "lstm", bidirectional: bool = False) -> dict[str, Any]:
    features = WordFeatures(FEATURES, LEXICON)
    layers = build_encoder(**(reader(encoder) if bidirectional else one_way(encoder)), d_in=features.d_out)
    return {"features": features, "layers": layers, "pooling": MeanPooling(layers.d_out), "num_labels": K}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pooling": None}, "a classifier needs a pooling or n-grams; set head.pooling or head.ngrams"),
        ({"pair": True, "bag": NgramBag(K, buckets=8)}, "a PairBag is for pairs, an NgramBag for single texts"),
        ({"bag": PairBag(K, buckets=8)}, "a PairBag is for pairs, an NgramBag for single texts"),
        (
            {"segment": 5} | parts("lstm", True),
            "only layers that read in one direction .* directions.bidirectional=false",
        ),
        ({"segment": 5} | parts("rotary", True), "only layers that read in one direction"),
        ({"segment": 5} | parts("window", True), "only layers that read in one direction"),
    ],
)
def test_contradicting_options_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Classifier(**parts() | change)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("encoder", ["elman", "lstm", "gru", "window", "windows", "rotary"])
def test_last_pooling_of_two_directions_reads_where_each_ends(encoder: str) -> None:
    """The left half is read at the last position, the right half at the first; other outputs at the last position."""
    words = words_of(LEXICON, TEXTS)
    is_mixed = encoder in ("windows", "rotary")
    for merge in ("sum",) if is_mixed else ("concatenate", "sum"):
        torch.manual_seed(0)
        keys: dict[str, Any] = {"d_model": 7} if encoder == "windows" else {} if is_mixed else {"merge": merge}
        specification, head = reader(encoder, **keys), ClassHeadSpecification(pooling=["last"])
        classifier = build_classifier(FEATURES, head=head, lexicon=LEXICON, num_labels=K, **specification)
        vector = classifier.pool(classifier.features(words), words.numbers, words.mask).vector
        h, _ = classifier.layers(classifier.features(words), mask=words.mask)
        for row, text in enumerate(TEXTS):
            if length := len(text.split()):
                ends = [h[row, length - 1, :6], h[row, 0, 6:]] if merge == "concatenate" else [h[row, length - 1]]
                same(vector[row], torch.cat(ends))


def test_the_number_of_parameters_includes_frozen_ratios() -> None:
    features = FeatureSpecification(d_words=2)
    head = ClassHeadSpecification(pooling=["mean"], ngrams=1, ngram_buckets=10)
    lexicon = lexicon_of()
    classifier = build_classifier(features, head=head, lexicon=lexicon, num_labels=K, **reader("none"))
    assert count_parameters(classifier) == 8 * 2 + (2 * K + K) + (10 * K + K + 10)
