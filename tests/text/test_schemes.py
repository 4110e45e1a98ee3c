"""Label schemes equal seqeval's reading, hand-worked cases, and an enumeration of every short label sequence."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.errors import DataError
from ensue.text.schemes import Scheme, SchemeDetector, Span, convert, encode, legal_transitions, spans, tag_set

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
EVERY_TAG = ["O", *(f"{prefix}-{name}" for prefix in "BIES" for name in "XY")]


def from_seqeval(labels: list[str]) -> list[Span]:
    from seqeval.metrics.sequence_labeling import get_entities  # noqa: PLC0415 (scikit-learn comes along)

    return [Span(name, first, last + 1) for name, first, last in get_entities(labels)]


def detect_scheme(sequences: Iterable[Sequence[str]]) -> Scheme | None:
    detector = SchemeDetector()
    for labels in sequences:
        detector.feed(labels)
    return detector.result()


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Draw spans without overlap, often without a gap and of one class, and the length of their sentence."""
    result, end = [], 0
    names = st.sampled_from(["X", "Y", "A-B", "", "x y"])
    for gap, length, name in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), names), max_size=6)):
        result.append(Span(name, end + gap, end + gap + length))
        end = result[-1].end
    return result, end + draw(st.integers(0, 2))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param("I-PER I-PER O I-LOC B-LOC I-LOC I-ORG", "PER:0-2 LOC:3-4 LOC:4-6 ORG:6-7", id="iob1"),
        pytest.param("B-PER I-PER O B-LOC B-LOC I-LOC B-ORG", "PER:0-2 LOC:3-4 LOC:4-6 ORG:6-7", id="bio"),
        pytest.param("B-PER E-PER O S-LOC B-LOC E-LOC S-ORG", "PER:0-2 LOC:3-4 LOC:4-6 ORG:6-7", id="iobes"),
        pytest.param("B-PER L-PER O U-LOC B-LOC L-LOC U-ORG", "PER:0-2 LOC:3-4 LOC:4-6 ORG:6-7", id="bilou"),
        pytest.param("B-PER M-PER M-PER E-PER S-PER O", "PER:0-4 PER:4-5", id="bmes"),
        pytest.param("B-PER M-PER M-PER E-PER W-PER O", "PER:0-4 PER:4-5", id="bmewo"),
        pytest.param("I-PER I-PER O I-LOC E-LOC I-LOC I-ORG", "PER:0-2 LOC:3-5 LOC:5-6 ORG:6-7", id="ioe1"),
        pytest.param("I-PER E-PER O E-LOC E-LOC I-LOC E-LOC", "PER:0-2 LOC:3-4 LOC:4-5 LOC:5-7", id="ioe2"),
        pytest.param("O I-X I-Y B-Y I-X", "X:1-2 Y:2-3 Y:3-4 X:4-5", id="another class begins another span"),
        pytest.param("E-X E-X I-X E-X O E-X", "X:0-1 X:1-2 X:2-4 X:5-6", id="an end without a beginning is a span"),
        pytest.param("S-X I-X S-X E-X B-X", "X:0-1 X:1-2 X:2-3 X:3-4 X:4-5", id="nothing goes on after S"),
        pytest.param("B-X O B-X S-X", "X:0-1 X:2-3 X:3-4", id="spans that never end"),
        pytest.param("B-A-B I-A-B I-A B-A-", "A-B:0-2 A:2-3 A-:3-4", id="dashes in the class"),
        pytest.param("B I O B", ":0-2 :3-4", id="prefixes alone"),
        pytest.param("B-X NN -LRB- NN-X I-X o b-X", "X:0-1 X:4-5", id="what has no prefix is outside"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_spans_of_hand_worked_labels_are_correct(labels: str, expected: str) -> None:
    assert " ".join(f"{span.label}:{span.start}-{span.end}" for span in spans(labels.split())) == expected


def test_spans_of_every_short_sequence_equal_those_of_seqeval() -> None:
    for length in range(4):
        for labels in product(EVERY_TAG, repeat=length):
            assert spans(labels) == from_seqeval(list(labels))


@given(st.lists(st.sampled_from([*EVERY_TAG, "B-A-B", "I-A-B", "E-A-B"]), max_size=30))
def test_spans_of_long_sequences_equal_those_of_seqeval(labels: list[str]) -> None:
    assert spans(labels) == from_seqeval(labels)


@given(st.lists(st.sampled_from(EVERY_TAG), max_size=12))
def test_illegal_labels_are_converted_by_their_spans(labels: list[str]) -> None:
    for scheme in SCHEMES:
        assert convert(labels, scheme) == encode(spans(labels), len(labels), scheme)


@given(st.lists(st.sampled_from(EVERY_TAG), max_size=12))
def test_other_letters_are_read_as_their_synonyms(labels: list[str]) -> None:
    bilou = [label.replace("E-", "L-").replace("S-", "U-") for label in labels]
    bmes = [label.replace("I-", "M-") for label in labels]
    bmewo = [label.replace("S-", "W-") for label in bmes]
    assert spans(bilou) == spans(bmes) == spans(bmewo) == spans(labels)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("iob1", "I-X I-X I-X B-X I-Y O I-Y B-Y I-Y"), ("bio", "B-X I-X I-X B-X B-Y O B-Y B-Y I-Y"),
        ("iobes", "B-X I-X E-X S-X S-Y O S-Y B-Y E-Y"), ("bmes", "B-X M-X E-X S-X S-Y O S-Y B-Y E-Y"),
        ("bilou", "B-X I-X L-X U-X U-Y O U-Y B-Y L-Y"), ("bmewo", "B-X M-X E-X W-X W-Y O W-Y B-Y E-Y"),
        ("ioe1", "I-X I-X E-X I-X I-Y O E-Y I-Y I-Y"), ("ioe2", "I-X I-X E-X E-X E-Y O E-Y I-Y E-Y"),
    ],
)  # fmt: skip
def test_labels_of_spans_are_correct_in_every_scheme(scheme: Scheme, expected: str) -> None:
    result = [Span("X", 0, 3), Span("X", 3, 4), Span("Y", 4, 5), Span("Y", 6, 7), Span("Y", 7, 9)]
    assert " ".join(encode(reversed(result), 9, scheme)) == expected
    assert encode([], 2, scheme) == ["O", "O"]


def test_the_empty_class_is_a_prefix_alone() -> None:
    assert encode([Span("", 0, 1), Span("", 1, 3)], 3, "iob1") == ["I", "B", "I"]


def test_overlapping_spans_are_refused() -> None:
    with pytest.raises(AssertionError):
        encode([Span("X", 0, 2), Span("Y", 1, 3)], 3, "bio")
    with pytest.raises(AssertionError):
        encode([Span("X", 0, 2)], 1, "bio")


@given(sentences(), st.sampled_from(SCHEMES), st.sampled_from(SCHEMES))
def test_spans_round_trip_through_every_scheme(sentence: tuple[list[Span], int], first: Scheme, second: Scheme) -> None:
    result, length = sentence
    labels = encode(result, length, first)
    assert spans(labels) == result
    assert convert(labels, second) == encode(result, length, second)
    assert convert(convert(labels, second), first) == labels


def test_tag_sets_have_the_tags_of_their_scheme() -> None:
    assert tag_set(["PER", "LOC", "PER"], "bio") == ["O", "B-LOC", "B-PER", "I-LOC", "I-PER"]
    assert tag_set(["X"], "iobes") == ["O", "B-X", "E-X", "I-X", "S-X"]
    assert tag_set(["X"], "bmes") == ["O", "B-X", "E-X", "M-X", "S-X"]
    assert tag_set([], "iob1") == ["O"]


@given(sentences(), st.sampled_from(SCHEMES))
def test_a_tag_set_has_every_encoded_label(sentence: tuple[list[Span], int], scheme: Scheme) -> None:
    result, length = sentence
    assert set(encode(result, length, scheme)) <= set(tag_set((span.label for span in result), scheme))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_legal_paths_are_those_that_round_trip(scheme: Scheme) -> None:
    """The test enumerates every sequence of up to four tags."""
    tags = tag_set("XY", scheme)
    start, pairs, end = legal_transitions(tags, scheme)
    for length in range(1, 5):
        for path in product(range(len(tags)), repeat=length):
            legal = start[path[0]] and end[path[-1]] and all(pairs[a, b] for a, b in pairwise(path))
            labels = [tags[index] for index in path]
            assert legal == (convert(labels, scheme) == labels), labels


def test_legal_transitions_of_simple_schemes_are_correct() -> None:
    start, pairs, end = legal_transitions(["O", "B-X", "I-X", "I-Y"], "bio")
    assert start.tolist() == [True, True, False, False]
    assert pairs.tolist() == [
        [True, True, False, False], [True, True, True, False], [True, True, True, False], [True, True, False, True],
    ]  # fmt: skip
    assert end.tolist() == [True, True, True, True]
    start, pairs, end = legal_transitions([], "bio")
    assert (start.shape, pairs.shape, end.shape) == ((0,), (0, 0), (0,))
    with pytest.raises(AssertionError, match="E-X is not a tag of bio"):
        legal_transitions(["O", "E-X"], "bio")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("I-ORG O I-MISC O | I-PER I-PER B-PER", "iob1", id="iob1"),
        pytest.param("I-ORG O | O I-PER I-PER", "iob1", id="iob1 without B"),
        pytest.param("B-NP B-VP B-NP I-NP O | B-NP", "bio", id="bio"),
        pytest.param("B-X O | B-X B-X", "bio", id="bio without I"),
        pytest.param("B-X I-X E-X O S-Y | O", "iobes", id="iobes"),
        pytest.param("S-X O S-Y", "iobes", id="S alone"),
        pytest.param("B-X I-X L-X O U-Y", "bilou", id="bilou"),
        pytest.param("B-X M-X E-X O W-Y", "bmewo", id="bmewo"),
        pytest.param("W-X", "bmewo", id="W alone"),
        pytest.param("I-X E-X O E-Y", "ioe2", id="ioe2"),
        pytest.param("E-X", "ioe2", id="E alone"),
        pytest.param("I-X E-X I-X O I-Y", "ioe1", id="ioe1"),
        pytest.param("I-X E-X O I-Y | " + "I-X E-X | " * 30, "ioe2", id="ioe2 with a slip"),
        pytest.param("B-NAME M-NAME E-NAME S-NAME O", "bmes", id="bmes"),
        pytest.param("B-NAME E-NAME M-NAME E-NAME | " + "S-X | " * 30, "bmes", id="bmes with a slip"),
        pytest.param("B-X O I-X | " + "B-X I-X | " * 30, "bio", id="bio with a slip"),
        pytest.param("I-X O B-X | " + "I-X I-X | " * 30, "iob1", id="iob1 with a slip"),
        pytest.param("O O | O", None, id="only O"),
        pytest.param("", None, id="nothing"),
        pytest.param("DET NOUN X SYM B S O | PUNCT I", None, id="parts of speech"),
        pytest.param("-LRB- PRP$ NN-x -RRB- `` NN", None, id="Penn tags"),
        pytest.param("S----3MP1- N------S1D C--------- O I--------- VP-A-3MS--", None, id="positional codes"),
        pytest.param("E-mail is O K", None, id="words"),
        pytest.param("B- I- O", None, id="no class"),
        pytest.param("per O loc", None, id="classes without prefixes"),
    ],
)
def test_the_scheme_of_labels_is_detected(text: str, expected: Scheme | None) -> None:
    assert detect_scheme(sentence.split() for sentence in text.split("|")) == expected


@given(st.lists(sentences(), max_size=5), st.sampled_from(SCHEMES))
def test_the_scheme_of_encoded_labels_is_detected(result: list[tuple[list[Span], int]], scheme: Scheme) -> None:
    """The result is the scheme, or another with equal labels."""
    named = [([span._replace(label=span.label or "Z") for span in sentence], length) for sentence, length in result]
    labels = [encode(sentence, length, scheme) for sentence, length in named]
    detected = detect_scheme(labels)
    if not any(sentence for sentence, _ in named):
        assert detected is None
        return
    assert detected is not None
    assert [encode(sentence, length, detected) for sentence, length in named] == labels
    if scheme in ("bio", "iob1", "ioe2"):
        assert detected == scheme


def failure(text: str) -> str:
    """Return the message for sentences that begin at lines 1, 11, 21, ..."""
    detector = SchemeDetector()
    for index, sentence in enumerate(text.split("|")):
        detector.feed(sentence.split(), line=10 * index + 1)
    with pytest.raises(DataError) as error:
        detector.result("a.conll")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "start", "fragments"),
    [
        pytest.param(
            "B-X I-X | O | B-X M-X E-X",
            "a.conll:21: mixed schemes: ",
            ["I- (first in line 1)", "M- (first in line 21)"],
        ),
        pytest.param("B-X L-X | S-X", "a.conll:11: mixed schemes: ", ["L- (first in line 1)", "S- (first in line 11)"]),
        pytest.param(
            "I-X O | B-X I-X | O I-X",
            "a.conll:11: mixed schemes: ",
            ['2 of 3 sentences with spans are not bio, first violation: "I-X" at the start (line 1)', "1 of 3"],
        ),
        pytest.param(
            "B-X E-X O | S-Y O | B-X I-X O",
            "a.conll:21: mixed schemes: ",
            ['1 of 3 sentences with spans are not iobes, first violation: "O" after "I-X" (line 21)'],
        ),
        pytest.param(
            "O | B-PER | O BPER I-PER", 'a.conll:21: the label "BPER" has no prefix', ["but line 11 has B-", "bio"]
        ),
    ],
)
def test_labels_of_no_scheme_are_reported_with_their_line(text: str, start: str, fragments: list[str]) -> None:
    message = failure(text)
    assert message.startswith(start)
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_without_lines_the_error_names_sentences() -> None:
    with pytest.raises(DataError, match=r"^mixed schemes: B- \(first in sentence 1\), M- \(first in sentence 2\), I- "):
        detect_scheme([["B-X"], ["O", "M-X", "I-X"]])
    with pytest.raises(DataError, match=r'^the label "X" \(sentence 2\) has no prefix'):
        detect_scheme([["B-X"], ["O", "X", "I-X"]])


def test_violations_can_be_reported() -> None:
    detector = SchemeDetector()
    for line in range(1, 42, 2):
        detector.feed(["O", "I-X", "I-X"] if line in (5, 9) else ["B-X", "I-X"], line)
    violations = detector.violations("bio")
    assert violations is not None
    assert (violations.sentences, str(violations)) == (2, '"I-X" after "O" (line 5)')
    assert detector.violations("iobes") is not None
    with pytest.raises(DataError, match="2 of 21 sentences with spans are not bio"):
        detector.result()
