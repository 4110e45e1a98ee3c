"""Edit scripts, and the labels of several columns: what a head learns of each, and back."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.text.edit_scripts import applied, edit_script
from ensue.text.label_columns import LabelColumns, Learned, learned_values
from ensue.text.labels import Labels

WORDS = ["Dogs", "bark", "loudly"]
ROWS = [
    ("NOUN", "Number=Plur", "dog"),
    ("VERB", "Mood=Ind|Tense=Pres|VerbForm=Fin", "bark"),
    ("ADV", "_", "loudly"),
]


def columns() -> LabelColumns:
    found: dict[str, list[Learned]] = {}
    for place, name in enumerate(["upos", "feats", "lemma"]):
        counts = learned_values(name, [(WORDS, [row[place] for row in ROWS])])
        parts = [
            Learned(kind, key, Labels(sorted(values), scheme=None, tag_scheme=None))
            for (kind, key), values in counts.items()
        ]
        found[name] = parts
    return LabelColumns(found)


@given(st.text(max_size=12), st.text(min_size=1, max_size=12))
def test_a_script_makes_its_result_of_its_form(form: str, result: str) -> None:
    assert applied(edit_script(form, result), form) == result


@pytest.mark.parametrize(
    ("form", "lemma", "script"),
    [
        ("dogs", "dog", "lower-0+-1+"),
        ("Books", "book", "lower-0+-1+"),
        ("London", "London", "keep-0+-0+"),
        ("LONDON", "London", "title-0+-0+"),
        ("geliebt", "lieben", "lower-2+-1+en"),
        ("is", "be", "=be"),
        ("IBM's", "IBM", "keep-0+-2+"),
    ],
)
def test_scripts_by_hand(form: str, lemma: str, script: str) -> None:
    assert edit_script(form, lemma) == script


def test_a_script_that_does_not_apply_leaves_the_form_in_lowercase() -> None:
    for script in ("lower-2+-3+", "=", "", "nonsense", "lower-x+-1+", "keep-1+-2+"):
        assert applied(script, "The") == "the"


def test_each_attribute_is_learned_by_itself_and_comes_back() -> None:
    labels = columns()
    assert [(part.kind, part.key) for part in labels.learned] == [
        ("label", ""), ("attribute", "Mood"), ("attribute", "Number"), ("attribute", "Tense"),
        ("attribute", "VerbForm"), ("script", ""),
    ]  # fmt: skip
    ids = labels.encode(ROWS, WORDS)
    assert labels.decode(ids, WORDS) == ROWS
    again = LabelColumns.from_json(labels.to_json())
    assert again.encode(ROWS, WORDS) == ids
    assert labels.encode([("X", "Number=Dual", "went")], ["gone"])[0] == [-1, 1, -1, 1, 1, -1]
    assert (labels.encode([], []), labels.decode([], [])) == ([], [])


def test_the_probability_of_a_value_is_the_sum_over_all_tags_that_say_it() -> None:
    """All combinations of tags of a word, with the product of their shares, added up by what they decode to."""
    labels, chance = columns(), np.random.default_rng(0)
    shares = [chance.dirichlet(np.ones(len(part.labels))) for part in labels.learned]
    expected: dict[tuple[str, str], float] = {}
    for tags in itertools.product(*(range(len(part.labels)) for part in labels.learned)):
        share = prod(of[tag] for of, tag in zip(shares, tags, strict=True))
        (row,) = labels.decode([tags], ["barks"])
        for name, value in zip(labels.names, row, strict=True):
            expected[name, value] = expected.get((name, value), 0.0) + share
    marginals = np.concatenate(shares)[None]
    for row in [("NOUN", "Number=Plur", "bark"), ("ADV", "_", "barks")]:
        (found,) = labels.confidence([row], marginals, ["barks"])
        assert found == pytest.approx({name: expected[name, value] for name, value in zip(found, row, strict=True)})
