"""Taggers: losses and scores do not depend on the batch, for every encoder, and recipes select the head."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.models.build_text import build_tagger
from ensue.models.tag_heads import PADDING, CRFTagHead, SoftmaxTagHead, TagHead, ViterbiTagHead
from ensue.models.tagger import SentenceIndices, Tagger
from ensue.models.word_specification import SentenceFeatureSpecification, TagHeadSpecification
from ensue.text.labels import Labels
from models import ENCODER_DIRECTIONS, TEXTS, lexicon_of, one_way, reader, words_of

same = torch.testing.assert_close
FEATURES = SentenceFeatureSpecification(
    d_words=5, dropout_words=0.0, characters="lstm", d_character=3, d_characters=4, affixes=2, d_affix=2, d_shape=2,
    columns=["initial"], d_column=2,
)  # fmt: skip
INITIALS = {"initial": [word[0] for text in TEXTS for word in text.split()]}
LEXICON = lexicon_of(characters=True, longest_affix=2, shapes=True, columns=INITIALS)
LABELS = Labels(["B-X", "I-X", "O"], scheme="bio", tag_scheme="iobes")
LENGTHS = [len(text.split()) for text in TEXTS]
KINDS = ["softmax", "viterbi", "crf"]


def build(encoder: str, bidirectional: bool, kind: str = "crf", **head: Any) -> Tagger:
    torch.manual_seed(0)
    specification = reader(encoder) if bidirectional else one_way(encoder)
    tagger = build_tagger(
        FEATURES, head=TagHeadSpecification(kind=kind, **head), lexicon=LEXICON, labels=LABELS, **specification
    )
    return tagger.double()


def tags_of(texts: list[str]) -> Tensor:
    """Return a legal tag sequence for each text."""
    tags = torch.full((len(texts), max(len(text.split()) for text in texts)), PADDING)
    for row, text in enumerate(texts):
        labels = (["B-X", "I-X", "I-X", "O"] * 2)[: len(text.split())]
        tags[row, : len(labels)] = torch.tensor(LABELS.encode(labels), dtype=torch.int64)
    return tags


def alone(row: int) -> dict[str, list[str]]:
    start = sum(LENGTHS[:row])
    return {"initial": INITIALS["initial"][start : start + LENGTHS[row]]}


def test_features_of_repeated_words_equal_their_maxima() -> None:
    """Maxima are over the positions of a row with the same word, ignoring case; padding is not a word."""
    tagger = build("elman", True, "softmax", repeats=True)
    words = words_of(LEXICON, ["a Bird bird A", "xyz zyx xyz", "bird"], {"initial": list("aBbAxzxb")})
    h, _ = tagger.layers(tagger.features(words), mask=words.mask)
    equal = [[[0, 3], [1, 2], [1, 2], [0, 3]], [[0, 2], [1], [0, 2]], [[0]]]
    emissions = tagger(words)
    for row, places in enumerate(equal):
        for place, others in enumerate(places):
            seen = torch.cat((h[row, place], h[row, others].amax(0)))
            same(emissions[row, place], tagger.head.projection(seen).float())
    changed = words._replace(mask=words.mask, numbers=words.numbers.masked_fill(~words.mask, 1))  # type: ignore[operator]
    same(tagger(changed)[words.mask], emissions[words.mask])  # type: ignore[index]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentences_of_a_row_are_scored_independently(kind: str) -> None:
    """Without an encoder the loss equals that of one sentence in each row, and losses of rows add up."""
    tagger = build("none", True, kind)
    expected = tagger.loss(words_of(LEXICON, TEXTS, INITIALS), tags_of(TEXTS))
    rows = [" ".join(TEXTS[:2]), " ".join(TEXTS[2:])]
    words = words_of(LEXICON, rows, INITIALS)
    width, max_length = words.numbers.shape[1], max(LENGTHS)
    begins = torch.tensor([0, LENGTHS[0], width, width + LENGTHS[2], width + LENGTHS[2] + LENGTHS[3]])
    mask = torch.arange(max_length) < torch.tensor(LENGTHS).unsqueeze(1)
    places = (begins.unsqueeze(1) + torch.arange(max_length)) * mask
    sentences, tags = SentenceIndices(places, mask, torch.tensor([0, 0, 1, 1, 1])), tags_of(TEXTS)
    full_loss = tagger.loss(words, tags, sentences)
    first = tagger.loss(
        words.slice_rows(slice(0, 1)), tags[:2], SentenceIndices(places[:2], mask[:2], sentences.rows[:2])
    )
    second_indices = SentenceIndices((places[2:] - width) * mask[2:], mask[2:], sentences.rows[2:] - 1)
    second = tagger.loss(words.slice_rows(slice(1, 2)), tags[2:], second_indices)
    same(full_loss.total, expected.total)
    same((first + second).total, expected.total)
    assert full_loss.count == (first + second).count == expected.count


VARIANTS: list[dict[str, Any]] = [{"kind": kind} for kind in KINDS[:2]] + [{"repeats": True}]
WITH_HEADS = [pytest.param(*case.values, {}, marks=case.marks) for case in ENCODER_DIRECTIONS] + [
    ("gru", True, head) for head in VARIANTS
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("encoder", "bidirectional", "head"), WITH_HEADS)
def test_results_do_not_depend_on_the_batch(encoder: str, bidirectional: bool, head: dict[str, Any]) -> None:
    """One text has no words, and some have unknown words."""
    tagger = build(encoder, bidirectional, **head)
    together = words_of(LEXICON, TEXTS, INITIALS)
    emissions, loss = tagger(together), tagger.loss(together, tags_of(TEXTS))
    assert loss.count == sum(LENGTHS)
    losses = []
    for row, text in enumerate(TEXTS):
        words = words_of(LEXICON, [text], alone(row))
        same(tagger(words)[0], emissions[row, : LENGTHS[row]])
        losses.append(tagger.loss(words, tags_of([text])))
        assert losses[-1].count == LENGTHS[row]
    total = torch.stack([each.total for each in losses]).sum()
    same(total, loss.total)
    halves = [tagger.loss(together.slice_rows(rows), tags_of(TEXTS)[rows]) for rows in (slice(0, 2), slice(2, None))]
    same((halves[0] + halves[1]).total, loss.total)
    assert (halves[0] + halves[1]).count == loss.count
    trained = [parameter for parameter in tagger.parameters() if parameter.requires_grad]
    gradients, expected = (torch.autograd.grad(each, trained, materialize_grads=True) for each in (loss.total, total))
    same(gradients, expected, rtol=1e-4, atol=1e-6)  # features are float32


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("encoder", "bidirectional"), ENCODER_DIRECTIONS)
def test_every_parameter_has_a_gradient(encoder: str, bidirectional: bool) -> None:
    tagger = build(encoder, bidirectional)
    tagger.loss(words_of(LEXICON, TEXTS, INITIALS), tags_of(TEXTS)).total.backward()
    assert [name for name, p in tagger.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("encoder", "bidirectional"), ENCODER_DIRECTIONS)
def test_scores_of_assembled_features_equal_those_of_words(encoder: str, bidirectional: bool) -> None:
    """Pipelines assemble features from cached vectors of forms."""
    tagger, words = build(encoder, bidirectional).float().eval(), words_of(LEXICON, TEXTS, INITIALS)
    vectors = tagger.features.form_vectors(words.forms)
    x = tagger.features.assemble(vectors, words.numbers, words.columns)
    keys = words.forms.keys[words.numbers]
    same(tagger.emissions(x, keys, words.mask), tagger(words), rtol=0, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("encoder", "bidirectional", "head"), WITH_HEADS)
def test_texts_without_words_have_no_loss(encoder: str, bidirectional: bool, head: dict[str, Any]) -> None:
    tagger = build(encoder, bidirectional, **head)
    words = words_of(LEXICON, ["", ""], {"initial": []})
    loss = tagger.loss(words, torch.full((2, 0), PADDING))
    assert (loss.total.item(), loss.count) == (0, 0)
    assert loss.mean.item() == 0
    loss.total.backward()
    assert tagger(words).shape == (2, 0, 5)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ({"kind": "softmax", "label_smoothing": 0.2}, SoftmaxTagHead),
        ({"kind": "viterbi", "bigram_weight": 0.3, "label_smoothing": 0.1}, ViterbiTagHead),
        ({"kind": "crf"}, CRFTagHead),
    ],
)
@pytest.mark.parametrize("legal", [True, False])
def test_the_recipe_selects_the_head(head: dict[str, Any], expected: type[TagHead], legal: bool) -> None:
    built_head = build("lstm", True, **head, legal=legal).head
    assert type(built_head) is expected
    assert built_head.num_tags == 5
    if isinstance(built_head, SoftmaxTagHead):
        assert built_head.label_smoothing == head["label_smoothing"]
    if isinstance(built_head, ViterbiTagHead):
        assert built_head.weight == 0.3
    if isinstance(built_head, ViterbiTagHead | CRFTagHead):
        rules = built_head.legal if isinstance(built_head, ViterbiTagHead) else built_head.crf.legal
        assert (rules is not None) == legal
        if rules is not None:
            inside = LABELS.tags.ids["I-X"]
            assert not rules.start[inside]
            assert not rules.end[inside]
            assert not rules.pairs[LABELS.tags.ids["O"], inside]
            assert rules.pairs[LABELS.tags.ids["B-X"], inside]


@pytest.mark.parametrize("kind", KINDS)
def test_plain_labels_forbid_nothing(kind: str) -> None:
    labels = Labels(["NOUN", "VERB"], scheme=None, tag_scheme=None)
    tagger = build_tagger(
        FEATURES, head=TagHeadSpecification(kind=kind), lexicon=LEXICON, labels=labels, **reader("lstm")
    )  # type: ignore[arg-type]
    head = tagger.head
    assert getattr(head, "legal", None) is None
    assert not isinstance(head, CRFTagHead) or head.crf.legal is None
    assert head.num_tags == 2
