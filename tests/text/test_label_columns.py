"""Edit scripts, and labels of several columns: targets of each head, and back."""

import itertools
import time
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text import schemes
from ensue.text.edit_scripts import apply_script, edit_script
from ensue.text.label_columns import HEAD_KINDS, LabelColumns, LabelHead, NestedLabels, count_head_values
from ensue.text.labels import Labels

WORDS = ["Dogs", "bark", "loudly"]
ROWS = [("NOUN", "Number=Plur", "dog"), ("VERB", "Mood=Ind|Tense=Pres|VerbForm=Fin", "bark"), ("ADV", "_", "loudly")]


def columns() -> LabelColumns:
    result: dict[str, list[LabelHead]] = {}
    for position, name in enumerate(["upos", "feats", "lemma"]):
        counts = count_head_values(HEAD_KINDS.get(name, "label"), [(WORDS, [row[position] for row in ROWS])])
        heads = [
            LabelHead(kind, key, Labels(sorted(values), scheme=None, tag_scheme=None))
            for (kind, key), values in counts.items()
        ]
        result[name] = heads
    return LabelColumns(result)


@given(st.text(max_size=12), st.text(min_size=1, max_size=12))
def test_a_script_changes_its_form_into_its_result(form: str, result: str) -> None:
    assert apply_script(edit_script(form, result), form) == result


@pytest.mark.parametrize(
    ("form", "lemma", "script"),
    [
        ("dogs", "dog", "lower-0+-1+"), ("Books", "book", "lower-0+-1+"), ("London", "London", "keep-0+-0+"),
        ("LONDON", "London", "title-0+-0+"), ("geliebt", "lieben", "lower-2+-1+en"), ("is", "be", "=be"),
        ("IBM's", "IBM", "keep-0+-2+"),
    ],
)  # fmt: skip
def test_scripts_of_simple_cases_are_correct(form: str, lemma: str, script: str) -> None:
    assert edit_script(form, lemma) == script


def test_long_results_are_stored_as_text() -> None:
    """Their longest common part would take quadratic time."""
    start = time.process_time()
    for form, result, script in (
        ("a" * 10**6, "a" * 10**6 + "b", "=" + "a" * 10**6 + "b"),
        ("/Path" * 10**5, "/path" * 10**5, "lower-0+-0+"),
        ("/Path" * 10**5, "/Path" * 10**5, "keep-0+-0+"),
    ):
        assert edit_script(form, result) == script
        assert apply_script(script, form) == result
    assert time.process_time() - start < 5


def test_a_script_that_does_not_apply_gives_the_form_in_lowercase() -> None:
    for script in ("lower-2+-3+", "=", "", "nonsense", "lower-x+-1+", "keep-1+-2+"):
        assert apply_script(script, "The") == "the"


def test_attributes_are_separate_heads_and_round_trip() -> None:
    labels = columns()
    assert [(head.kind, head.key) for head in labels.learned] == [
        ("label", ""), ("attribute", "Mood"), ("attribute", "Number"), ("attribute", "Tense"),
        ("attribute", "VerbForm"), ("script", ""),
    ]  # fmt: skip
    ids = labels.encode(ROWS, WORDS)
    assert labels.decode(ids, WORDS) == ROWS
    loaded = LabelColumns.from_json(labels.to_json())
    assert loaded.encode(ROWS, WORDS) == ids
    assert labels.encode([("X", "Number=Dual", "went")], ["gone"])[0] == [-1, 1, -1, 1, 1, -1]
    assert (labels.encode([], []), labels.decode([], [])) == ([], [])


def test_the_probability_of_a_value_is_the_sum_over_its_tags() -> None:
    """The reference enumerates the tags of a word, and sums products of shares by the decoded value."""
    labels, chance = columns(), np.random.default_rng(0)
    shares = [chance.dirichlet(np.ones(len(head.labels))) for head in labels.learned]
    expected: dict[tuple[str, str], float] = {}
    for tags in itertools.product(*(range(len(head.labels)) for head in labels.learned)):
        share = prod(of[tag] for of, tag in zip(shares, tags, strict=True))
        (row,) = labels.decode([tags], ["barks"])
        for name, value in zip(labels.names, row, strict=True):
            expected[name, value] = expected.get((name, value), 0.0) + share
    marginals = np.concatenate(shares)[None]
    for row in [("NOUN", "Number=Plur", "bark"), ("ADV", "_", "barks")]:
        (result,) = labels.confidence([row], marginals, ["barks"])
        assert result == pytest.approx({name: expected[name, value] for name, value in zip(result, row, strict=True)})


@st.composite
def overlapping_sentences(draw: st.DrawFn) -> tuple[list[schemes.Span], int]:
    """Draw any spans of a sentence, and its length."""
    length = draw(st.integers(1, 7))
    position, names = st.integers(0, length), st.sampled_from(["NP", "A-B", ""])
    result = draw(st.lists(st.tuples(names, position, position), max_size=6))
    return [schemes.Span(name, *sorted(ends)) for name, *ends in result if ends[0] != ends[1]], length


@given(overlapping_sentences(), st.sampled_from(list(schemes.SCHEMES)))
def test_overlapping_spans_are_read_as_written(
    sentence: tuple[list[schemes.Span], int], scheme: schemes.Scheme
) -> None:
    result, length = sentence
    labels = schemes.encode_overlapping(result, length, scheme)
    assert len(labels) == length
    assert set(schemes.overlapping_spans(labels)) == set(result)
    if all(a.end <= b.start or b.end <= a.start for a, b in itertools.combinations(result, 2)):
        assert labels == schemes.encode(result, length, scheme)
        assert schemes.overlapping_spans(labels) == schemes.spans(labels)


def test_layers_have_one_label_for_a_gap() -> None:
    assert schemes.layers(["O", "O", "B-A", "I-A|B-B", "O", "O", "O", "B-A"]) == {
        "A": {0: "O", 2: "B-A", 3: "I-A", 4: "O", 7: "B-A"},
        "B": {0: "O", 3: "B-B", 4: "O"},
    }


@pytest.mark.slow
def test_many_classes_in_a_sentence_take_linear_time_in_their_spans() -> None:
    start, count = time.process_time(), 50_000
    result = [schemes.Span(f"c{position}", position, position + 1) for position in range(count)]
    labels = schemes.encode_overlapping(result, count, "bio")
    assert labels[-1] == f"B-c{count - 1}"
    assert schemes.overlapping_spans(labels) == result
    assert time.process_time() - start < 10


@pytest.mark.slow
def test_a_word_with_too_many_spans_is_refused_immediately() -> None:
    max_spans = [schemes.Span("NP", 0, end) for end in range(2, schemes.MAX_SPANS_OF_WORD + 2)]
    assert (
        len(schemes.overlapping_spans(schemes.encode_overlapping(max_spans, schemes.MAX_SPANS_OF_WORD + 1, "bio")))
        == schemes.MAX_SPANS_OF_WORD
    )
    for name in ("NP", "{}"):
        start, many_spans = time.process_time(), [schemes.Span(name.format(n), n, 100_000) for n in range(50_000)]
        with pytest.raises(ValueError, match="a word has more than 256 spans"):
            schemes.encode_overlapping(many_spans, 100_000, "bio")
        assert time.process_time() - start < 5


def nested_labels(*sentences: Sequence[str]) -> NestedLabels:
    counts = count_head_values("class", [(labels, labels) for labels in sentences])
    return NestedLabels(
        [
            LabelHead(kind, key, Labels(sorted(values), scheme="bio", tag_scheme="iobes"))
            for (kind, key), values in counts.items()
        ]
    )


def test_classes_and_layers_are_separate_heads() -> None:
    result = [schemes.Span("NP", 0, 4), schemes.Span("NP", 2, 4), schemes.Span("PER", 0, 1)]
    output = schemes.encode_overlapping(result, 5, "bio")
    assert output == ["B-NP|B-PER", "I-NP", "I-NP|B-NP+", "I-NP|I-NP+", "O"]
    labels = nested_labels(output, ["O"])
    assert [head.key for head in labels.learned] == ["NP", "NP+", "PER"]
    loaded = NestedLabels.from_json(labels.to_json())
    tags = loaded.encode(output)
    assert [[head.labels.symbols[tag] for head, tag in zip(loaded.learned, row, strict=True)] for row in tags[:3]] == [
        ["B-NP", "O", "S-PER"], ["I-NP", "O", "O"], ["I-NP", "B-NP+", "O"],
    ]  # fmt: skip
    assert loaded.decode(tags) == output
    assert loaded.spans(output) == [result[0], result[2], result[1]]
    certain = np.concatenate(
        [np.eye(len(head.labels))[[row[n] for row in tags]] for n, head in enumerate(loaded.learned)], 1
    )
    assert loaded.confidence(output, certain) == [1.0] * 5
    assert loaded.confidence(["O"] * 5, certain) == [0.0] * 4 + [1.0]


@pytest.mark.parametrize("name", ["A|B", "NP+"])
def test_a_class_with_a_sign_of_overlaps_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written where spans overlap"):
        schemes.encode_overlapping([schemes.Span(name, 0, 1)], 1, "bio")
