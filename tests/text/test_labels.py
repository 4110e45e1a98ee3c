"""Labels of taggers: conversion to tags and back between all schemes, confidence, saving."""

import json
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.labels import Labels
from ensue.text.schemes import Scheme, Span, encode, tag_set

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
PAIRS = [(scheme, tag_scheme) for scheme in SCHEMES for tag_scheme in SCHEMES]
BY_DEFAULT = [
    pytest.param(*pair, marks=[] if pair[0] == "bio" or pair[1] == "iobes" else [pytest.mark.slow]) for pair in PAIRS
]
CLASSES = ["PER", "LOC", "A-B"]
PLAIN = ["ADJ", "NOUN", "O", "VERB"]


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Draw spans, often without a gap, and the length of their sentence."""
    result, end = [], 0
    pieces = st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(CLASSES))
    for gap, length, name in draw(st.lists(pieces, max_size=5)):
        result.append(Span(name, end + gap, end + gap + length))
        end = result[-1].end
    return result, end + draw(st.integers(0, 2))


def labels_of(scheme: Scheme, tag_scheme: Scheme) -> Labels:
    return Labels(tag_set(CLASSES, scheme), scheme=scheme, tag_scheme=tag_scheme)


@given(pair=st.sampled_from(PAIRS), sentence=sentences())
def test_spans_are_learned_in_one_scheme_and_predicted_in_another(
    pair: tuple[Scheme, Scheme], sentence: tuple[list[Span], int]
) -> None:
    scheme, tag_scheme = pair
    labels, (spans, length) = labels_of(scheme, tag_scheme), sentence
    labels_of_spans = encode(spans, length, scheme)
    tags = labels.encode(labels_of_spans)
    assert [labels.tags.symbols[tag] for tag in tags] == encode(spans, length, tag_scheme)
    assert labels.decode(tags) == labels_of_spans
    assert labels.has_spans


def test_tags_and_labels_of_a_simple_case_are_correct() -> None:
    labels = Labels(["B-LOC", "B-PER", "I-PER", "O"], scheme="bio", tag_scheme="iobes")
    assert labels.tags.symbols == ("O", "B-LOC", "B-PER", "E-LOC", "E-PER", "I-LOC", "I-PER", "S-LOC", "S-PER")
    assert labels.encode(["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]) == [2, 4, 0, 7, 7]
    assert labels.decode([2, 4, 0, 7, 7]) == ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]
    assert labels.encode([]) == labels.decode([]) == []
    assert len(labels) == 9
    assert repr(labels) == "Labels(4 labels, scheme='bio', 9 tags)"


@pytest.mark.parametrize(("scheme", "tag_scheme"), BY_DEFAULT)
def test_labels_that_break_the_scheme_are_spans_as_the_scorer_reads_them(scheme: Scheme, tag_scheme: Scheme) -> None:
    labels = labels_of(scheme, tag_scheme)
    spans = [Span("PER", 0, 2), Span("LOC", 2, 3), Span("LOC", 4, 5)]
    tags = labels.encode(["I-PER", "I-PER", "I-LOC", "O", "I-LOC"])
    assert [labels.tags.symbols[tag] for tag in tags] == encode(spans, 5, tag_scheme)


@pytest.mark.parametrize(("scheme", "tag_scheme"), BY_DEFAULT)
def test_a_class_missing_in_training_is_not_learned(scheme: Scheme, tag_scheme: Scheme) -> None:
    labels = labels_of(scheme, tag_scheme)
    tags = labels.encode(encode([Span("NEW", 0, 3), Span("PER", 4, 6)], 7, scheme))
    assert tags[:3] == [-1] * 3
    assert [labels.tags.symbols[tag] for tag in tags[3:]] == encode([Span("PER", 1, 3)], 4, tag_scheme)


DISTINGUISHED: dict[Scheme, list[str]] = {"iob1": ["BIES"], "bio": ["BS", "IE"], "ioe1": ["BIES"], "ioe2": ["BI", "ES"]}
"""Positions in a span that a scheme distinguishes."""


def position_in_span(label: str, *schemes: Scheme) -> tuple[str, str]:
    """Return the position in a span, as far as all schemes distinguish it, and the class."""
    prefix, _, name = label.partition("-")
    kind = {"M": "I", "L": "E", "U": "S", "W": "S"}.get(prefix, prefix)
    for scheme in schemes:
        kind = (
            "".join(
                sorted(
                    {
                        position
                        for group in DISTINGUISHED.get(scheme, "BIES")
                        for position in group
                        if set(kind) & set(group)
                    }
                )
            )
            or "O"
        )
    return kind, name


@pytest.mark.parametrize(("scheme", "tag_scheme"), BY_DEFAULT)
def test_the_confidence_of_a_label_is_the_sum_over_its_tags(scheme: Scheme, tag_scheme: Scheme) -> None:
    labels = labels_of(scheme, tag_scheme)
    marginals = np.random.default_rng(0).dirichlet(np.ones(len(labels)), len(labels.names))
    expected = []
    for label, row in zip(labels.names, marginals, strict=True):
        position = position_in_span(label, scheme, tag_scheme)
        alike = [position_in_span(tag, scheme, tag_scheme) == position for tag in labels.tags.symbols]
        expected.append(row[alike].sum())
    assert labels.confidence(labels.names, marginals) == pytest.approx(expected)
    assert labels.confidence([], marginals[:0]) == []


@given(pair=st.sampled_from(PAIRS), sentence=sentences())
def test_a_label_is_as_probable_as_its_tag_or_more(
    pair: tuple[Scheme, Scheme], sentence: tuple[list[Span], int]
) -> None:
    scheme, tag_scheme = pair
    labels = labels_of(scheme, tag_scheme)
    tags = labels.encode(encode(*sentence, scheme))
    certain = np.eye(len(labels))[tags]
    assert labels.confidence(labels.decode(tags), certain) == [1.0] * len(tags)


def test_plain_labels_equal_their_tags() -> None:
    labels = Labels(PLAIN, scheme=None, tag_scheme=None)
    assert labels.tags.symbols == tuple(PLAIN)
    assert labels.encode(["VERB", "X", "noun", "ADJ"]) == [3, -1, -1, 0]
    assert labels.decode([3, 0]) == ["VERB", "ADJ"]
    assert labels.legal_transitions() is None
    shares = np.array([[0.1, 0.2, 0.3, 0.4]]).repeat(3, 0)
    assert labels.confidence(["O", "ADJ", "X"], shares) == [0.3, 0.1, 0.0]
    assert not labels.has_spans
    looking_so = Labels(["L-1", "U-2", "NN"], scheme=None, tag_scheme=None)
    assert looking_so.decode([0, 1, 2]) == ["L-1", "U-2", "NN"]


@given(pair=st.sampled_from(PAIRS), sentence=sentences())
def test_learned_tags_are_legal(pair: tuple[Scheme, Scheme], sentence: tuple[list[Span], int]) -> None:
    scheme, tag_scheme = pair
    labels = labels_of(scheme, tag_scheme)
    legal = labels.legal_transitions()
    assert legal is not None
    start, pairs, end = legal
    assert start.shape == end.shape == (len(labels),)
    assert pairs.shape == (len(labels), len(labels))
    tags = labels.encode(encode(*sentence, scheme))
    assert all(pairs[before, after] for before, after in pairwise(tags))
    assert not tags or (start[tags[0]] and end[tags[-1]])
    assert (pairs.any(1) & pairs.any(0)).all()


@pytest.mark.parametrize(("scheme", "tag_scheme"), [*BY_DEFAULT, (None, None)])
def test_saved_labels_are_equal_after_loading(scheme: Scheme | None, tag_scheme: Scheme | None) -> None:
    names = ["O", "B-PER", "I-PER", "ä \u2028 b", ""]
    labels = Labels(names, scheme=scheme, tag_scheme=tag_scheme)
    loaded = Labels.from_json(json.loads(json.dumps(labels.to_json())))
    assert loaded.to_json() == labels.to_json()
    assert loaded.names == tuple(names)
    assert loaded.tags.symbols == labels.tags.symbols


@pytest.mark.parametrize(
    "damage",
    [
        {"names": None}, {"names": []}, {"names": ["a", "a"]}, {"names": ["a", 1]}, {"names": [["a"]]}, {"names": 3},
        {"names": "abc"}, {"names": {"a": 0}}, {"scheme": "bioes"}, {"scheme": None}, {"tag_scheme": None},
        {"scheme": ["bio"]}, {"tag_scheme": 1},
    ],
    ids=str,
)  # fmt: skip
def test_invalid_content_is_refused(damage: dict[str, Any]) -> None:
    content = Labels(["O", "B-X"], scheme="bio", tag_scheme="iobes").to_json()
    with pytest.raises(ValueError, match=r"^.+$"):
        Labels.from_json(content | damage)
