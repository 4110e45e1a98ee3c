"""Glossaries: the text of an output has the required terms and no forbidden terms, for any tokenizer."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ensue.decode.search import BeamSearch, Hypothesis
from ensue.errors import DataError, EnsueError
from ensue.extensions.localization.glossary import Constraints, Glossary, Term
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizers import train_tokenizer

TEXT = "Die Bank am Ufer , das Bankhaus in der Uferstraße. die Ufer"


def side(kind: str) -> TokenizerWithSpecials:
    return TokenizerWithSpecials(train_tokenizer(kind, [TEXT], min_count=1))


def demands(glossary: Sequence[tuple[str, str]], source: str, kind: str = "words", **overrides: int) -> Constraints:
    limits = {"limit": 20, "max_tokens": 50} | overrides
    return Glossary.of(list(glossary), side(kind)).constraints([source], BeamSearch(), **limits)


def required(glossary: Sequence[tuple[str, str]], source: str) -> list[str]:
    return [term.target for term in demands(glossary, source).terms]


@pytest.mark.parametrize(
    ("term", "source", "is_found"),
    [
        ("bank", "The bank.", True), ("bank", "Bank robbers", True), ("bank", "two banks", False),
        ("bank", "embankment", False), ("Bank", "Bankhaus", False), ("Bank", "the bank", False),
        ("river bank", "the river  bank", True), ("C++", "in C++17", True), ("", "anything", True),
        ("銀行", "大銀行は", True),
    ],
)  # fmt: skip
def test_a_term_applies_to_sources_with_its_word(term: str, source: str, is_found: bool) -> None:
    assert required([(term, "Ufer")], source) == ["Ufer"] * is_found


@pytest.mark.parametrize(
    ("pair", "overrides", "expected"),
    [
        (("bank", "Fluss"), {}, 'pair 2 of the glossary: the model has no tokens for "Fluss"'),
        (("bank", "!Bank"), {}, 'pair 1 of the glossary: "Bank am Ufer" is required, and pair 2 of the glossary forb'),
        (
            ("", "die die die"),
            {"max_tokens": 4},
            'pair 1.*"Bank am Ufer" an output has 6 tokens or more; the maximum is 4',
        ),
        (("bank", "!"), {}, "pair 2 of the glossary: no target"),
        (("bank",), {}, "pair 2 of the glossary: expected source and target"),
    ],
)
def test_terms_that_cannot_be_met_are_refused_with_their_line(
    pair: tuple[str, str], overrides: dict[str, int], expected: str
) -> None:
    with pytest.raises(EnsueError, match=expected):
        demands([("bank", "Bank am Ufer"), pair], "the bank", **overrides)


def test_a_tab_separated_file_of_terms_is_read(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("Bank\tUfer\r\n\n\t!Bank\n", encoding="utf-8")
    terms = Glossary.of(path, side("words")).terms
    term_fields = [(term.source, term.target, term.is_forbidden, term.where) for term in terms]
    assert term_fields == [("Bank", "Ufer", False, f"{path}:1"), ("", "Bank", True, f"{path}:3")]
    path.write_text("Bank\tUfer\nBank Ufer\n", encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}:2: expected source and target, with a tab")):
        Glossary.of(path, side("words"))


@pytest.mark.parametrize("header", ["", "source,target\n", "de,en\n", "sep=,\n"])
@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.txt", ","), ("a.txt", ";")]
)
def test_a_csv_file_of_terms_is_read(name: str, delimiter: str, header: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = f"{header}river bank,Bank am Ufer\r\n\r\n,!Bank\n".replace(",", delimiter)
    path.write_text(rows if delimiter == "\t" else rows.replace("river bank", '"river bank"'), encoding="utf-8")
    terms = Glossary.of(path, side("words")).terms
    assert [(term.source, term.target, term.is_forbidden, term.where) for term in terms] == [
        ("river bank", "Bank am Ufer", False, f"{path}:{1 + bool(header)}"),
        ("", "Bank", True, f"{path}:{3 + bool(header)}"),
    ]  # fmt: skip


def hypothesis_of(writer: TokenizerWithSpecials, text: str) -> Hypothesis:
    return Hypothesis(tuple(writer.encode(text).tolist()), -1.0, -1.0)


def newly_forbidden(pair: tuple[str, str], text: str, kind: str) -> list[str]:
    """Return the phrases that are forbidden after an output with a violation."""
    writer = side(kind)
    constraints = demands([pair], "the bank", kind)
    before = set(constraints.forbidden)
    constraints.update([hypothesis_of(writer, text)], writer.decode)
    return sorted("".join(map(writer.symbol, phrase)) for phrase in constraints.forbidden - before)


def test_the_tokens_of_a_violation_are_forbidden() -> None:
    assert newly_forbidden(("", "!Bank"), "Die Bank am", "characters") == [" Bank "]
    assert newly_forbidden(("", "!ank"), "Die Bank am", "characters") == []
    assert newly_forbidden(("", "ank"), "Die Bank am", "characters") == ["Bank "[:4]]
    assert newly_forbidden(("", "Ufer"), "Die Uferstraße", "characters") == ["Ufers"]
    assert newly_forbidden(("", "!Bank"), "am-Bank", "bpe") != []


def test_a_required_phrase_may_contain_a_forbidden_one() -> None:
    constraints = demands([("", "!Bank"), ("", "Bankhaus")], "x", "characters")
    writer = side("characters")
    assert not constraints.update([hypothesis_of(writer, "das Bankhaus")], writer.decode)
    assert constraints.find_violations("das Bankhaus") == ()
    assert constraints.find_violations("die Bank") == ("!Bank", "Bankhaus")
    assert constraints.update([hypothesis_of(writer, "die Bank")], writer.decode)
    assert constraints.required == (tuple(writer.encode("Bankhaus").tolist()),)
    assert (constraints.width(5, 80), constraints.width(100, 80), constraints.limit) == (45, 100, 28)


def test_hypotheses_that_cost_least_to_correct_rank_first() -> None:
    """By the mean over all tokens, the longer output would rank first: -12 / 9 against -9 / 5."""
    constraints, texts = demands([("", "Ufer")], "x"), {4: "am Ufer", 8: "am am. Ufer", 3: "am Uferweg"}
    constraints.update([Hypothesis((1, 2, 3, 4), -0.5, -2.5)], lambda ids: "am")
    appended, inside = Hypothesis((1,) * 8, -12 / 9, -12.0), Hypothesis((1,) * 4, -9 / 5, -9.0)
    cut, lacking = inside._replace(is_complete=False), Hypothesis((1,) * 3, -0.5, -2.0)
    ranked = constraints.rank([lacking, cut, appended, inside], lambda ids: texts[len(ids)])
    assert ranked == [inside, appended, cut, lacking]


@pytest.mark.parametrize("character", "iıİsſkKµμσς")
def test_a_large_glossary_is_searched_by_first_words(character: str) -> None:
    """The index by first words selects the same terms as the pattern of each term, in any case of letters."""
    terms = [
        Term(f"{character}x y", "z", False, "here"),
        Term("日本", "z", False, "here"),
        Term("", "z", False, "here"),
    ]
    glossary = Glossary.__new__(Glossary)
    glossary.index(terms)
    for form in {character.upper(), character.lower(), character} if len(character.upper()) == 1 else {character}:
        texts = [f"a {form}x  y, 東日本"]
        assert glossary.terms_for(texts) == [term for term in terms if term.applies_to(texts)]
    assert len(glossary.terms_for([f"{character}x y"])) == 2
    assert len(glossary.terms_for([f"w{character}x y"])) == 1
