"""Features of words: all parts are looked up and concatenated in order; dropout, gradients, pretrained vectors."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.models import word_features
from ensue.models.word_features import EncodedForms, WordFeatures, Words
from ensue.models.word_specification import SentenceFeatureSpecification
from ensue.text.lexicon import Lexicon
from models import CPU, TEXTS, lexicon_of, words_of

same = torch.testing.assert_close
WORDS = " ".join(TEXTS).split()
VECTORS = ["Bird", "the", "bird"]
COLUMNS = {"pos": [word[0] for word in WORDS], "2": [str(len(word)) for word in WORDS]}
PARTS: dict[str, dict[str, Any]] = {
    "words": {"d_words": 5},
    "characters by lstm": {"characters": "lstm", "d_character": 3, "d_characters": 4},
    "characters by cnn": {"characters": "cnn", "d_character": 3, "d_characters": 5},
    "affixes": {"affixes": 3, "d_affix": 2},
    "shapes": {"d_shape": 4},
    "vectors": {"vectors": "a file"},
    "columns": {"columns": ["pos", "2"], "d_column": 3},
}
EVERYTHING = PARTS["words"] | PARTS["characters by lstm"] | PARTS["affixes"] | PARTS["shapes"] | PARTS["vectors"]
EVERYTHING |= PARTS["columns"]
CASES = {
    **PARTS,
    "all": EVERYTHING,
    "all but words": EVERYTHING | {"d_words": 0},
    "words and columns": PARTS["words"] | PARTS["columns"],
}


def build(**keys: Any) -> tuple[WordFeatures, Lexicon, SentenceFeatureSpecification]:
    specification = SentenceFeatureSpecification(**{"d_words": 0, "dropout_words": 0.0} | keys)
    lexicon = lexicon_of(
        characters=specification.characters != "none",
        longest_affix=specification.affixes,
        shapes=specification.d_shape > 0,
        columns={name: COLUMNS[name][:-2] for name in specification.columns},
        vectors=VECTORS if specification.vectors else None,
    )
    torch.manual_seed(0)
    pretrained = torch.cat((torch.zeros(1, 3), torch.randn(3, 3))) if specification.vectors else None
    return WordFeatures(specification, lexicon, pretrained=pretrained), lexicon, specification


def batch(lexicon: Lexicon) -> Words:
    return words_of(lexicon, TEXTS, {name: COLUMNS[name] for name in lexicon.columns})


def by_hand(features: WordFeatures, lexicon: Lexicon, word: str, columns: dict[str, str]) -> Tensor:
    """Return the features of a word, looked up part by part."""
    folded = "".join("0" if letter.isdecimal() else letter for letter in word.lower())
    parts = []
    if features.words is not None:
        parts.append(features.words.weight[lexicon.words.ids.get(folded, 0)])
    if features.characters is not None:
        assert lexicon.characters is not None
        ids = torch.tensor([[lexicon.characters.ids.get(letter, 0) for letter in word]])
        parts.append(features.characters(ids)[0])
    if features.affixes is not None:
        assert lexicon.affixes is not None
        for affixes in ([f"{folded[:n]}-" for n in (1, 2, 3)], [f"-{folded[-n:]}" for n in (1, 2, 3)]):
            parts += [features.affixes.weight[lexicon.affixes.ids.get(affix, 0)] for affix in affixes]
    if features.shapes is not None:
        assert lexicon.shapes is not None
        shape = {"Anna": "Xxxx", "Bird": "Xxxx", "1984": "ddd", "a": "x"}.get(word, "xxx")
        parts.append(features.shapes.weight[lexicon.shapes.ids[shape]])
    if features.vectors is not None:
        row = {"Bird": 1, "the": 2, "bird": 3}.get(word, 0)
        parts.append(features.vectors.weight[row])
    for table, (name, vocabulary) in zip(features.columns, lexicon.columns.items(), strict=True):
        parts.append(table.weight[vocabulary.ids.get(columns[name], 0)])  # type: ignore[index,union-attr]
    return torch.cat(parts)


def expected(features: WordFeatures, lexicon: Lexicon) -> list[Tensor]:
    """Return the features (T, d) of each text."""
    rows, place = [], 0
    for text in TEXTS:
        row = []
        for word in text.split():
            row.append(by_hand(features, lexicon, word, {name: values[place] for name, values in COLUMNS.items()}))
            place += 1
        rows.append(torch.stack(row) if row else torch.zeros(0, features.d_out))
    return rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_features_of_a_word_are_its_concatenated_parts(case: str) -> None:
    features, lexicon, _ = build(**CASES[case])
    result = features(batch(lexicon))
    rows = expected(features, lexicon)
    assert result.shape == (len(TEXTS), 8, features.d_out)
    for b, row in enumerate(rows):
        same(result[b, : len(row)], row)


@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("words", 5), ("characters by lstm", 4), ("characters by cnn", 5), ("affixes", 12), ("shapes", 4),
        ("vectors", 3), ("columns", 6), ("all", 34), ("all but words", 29), ("words and columns", 11),
    ],
)  # fmt: skip
def test_sizes_are_sums_of_parts(case: str, size: int) -> None:
    features, _, specification = build(**CASES[case])
    assert features.d_out == size
    assert features.d_forms == size - 3 * len(specification.columns)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_features_do_not_depend_on_position_and_batch(case: str) -> None:
    features, lexicon, _ = build(**CASES[case])
    together = features(batch(lexicon))
    place = 0
    for b, text in enumerate(TEXTS):
        length = len(text.split())
        columns = {name: COLUMNS[name][place : place + length] for name in lexicon.columns}
        same(features(words_of(lexicon, [text], columns))[0], together[b, :length])
        place += length


@pytest.mark.parametrize("case", [case for case in CASES if case != "columns"])
def test_every_table_has_a_gradient(case: str) -> None:
    features, lexicon, _ = build(**CASES[case], train_vectors=True)
    features(batch(lexicon)).square().sum().backward()
    for name, parameter in features.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_pretrained_vectors_are_frozen_or_trained() -> None:
    for trained in (False, True):
        features, lexicon, _ = build(**EVERYTHING, train_vectors=trained)
        assert features.vectors is not None
        before = features.vectors.weight.clone()
        features(batch(lexicon)).sum().backward()
        assert features.vectors.weight.requires_grad == trained
        assert (features.vectors.weight.grad is not None) == trained
        same(before[0], torch.zeros(3))
        assert "vectors.weight" in features.state_dict()


def test_pretrained_vectors_are_copied() -> None:
    lexicon, pretrained = lexicon_of(vectors=VECTORS), torch.randn(4, 3)
    features = WordFeatures(SentenceFeatureSpecification(d_words=0), lexicon, pretrained=pretrained)
    pretrained.zero_()
    assert features.vectors is not None
    assert features.vectors.weight.any()


def test_dropout_of_words_replaces_their_vectors_only_in_training() -> None:
    features, lexicon, _ = build(**EVERYTHING, dropout_words=0.5)
    words = batch(lexicon)
    expected_features = features.eval()(words)
    same(features(words), expected_features, rtol=0, atol=0)
    features.train()
    assert features.words is not None
    unknown, dropped, seen, steps = features.words.weight[0], 0, 0, set()
    for _ in range(16):
        before = dropped
        result = features(words)
        same(result[..., 5:], expected_features[..., 5:], rtol=0, atol=0)
        word_vectors = features.words(words.forms.words)[words.numbers]
        for form in range(len(words.forms.words)):
            places = words.numbers == form
            vectors = result[places][:, :5]
            same(vectors, vectors[:1].expand_as(vectors), rtol=0, atol=0)  # at all positions of the word
            is_kept, is_unknown = vectors[0].equal(word_vectors[places][0, :5]), vectors[0].equal(unknown)
            assert is_kept or is_unknown
            dropped, seen = dropped + (is_unknown and not is_kept), seen + 1
        steps.add(dropped - before)
    assert len(steps) > 3  # words are dropped independently
    assert seen == 16 * 9
    assert 0.35 < dropped / (seen * 8 / 9) < 0.65  # one of the 9 words is unknown


def test_dropout_of_features_drops_single_numbers() -> None:
    features, lexicon, _ = build(**EVERYTHING, dropout=0.5)
    words = batch(lexicon)
    full, dropped = features.eval()(words), features.train()(words)
    zero = dropped == 0
    same(dropped[~zero], 2 * full[~zero])
    assert 0.4 < zero.float().mean() < 0.6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_a_table_of_many_forms_has_their_vectors(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks group forms of similar length; the table keeps their order."""
    monkeypatch.setattr(word_features, "CHUNK_FORMS", 3)
    features, lexicon, _ = build(**CASES[case])
    forms = ["Anna", "a", "", "birdbirdbird", "the", "xyz", "1984", "old", "Bird", "the"] * 2
    encoded = lexicon.encode(forms)
    table = features.table(encoded, CPU)
    same(table.vectors, features.form_vectors(EncodedForms.of(encoded, CPU)).detach())
    assert table.vectors.shape == (20, features.d_forms)
    assert table.keys.tolist() == encoded.keys.tolist()
    numbers = torch.tensor([[3, 0], [19, 5]])
    columns = torch.zeros(2, 2, len(lexicon.columns), dtype=torch.int64)
    x = features.assemble(table.vectors, numbers, columns)
    same(x[..., : features.d_forms], table.vectors[numbers])


@pytest.mark.parametrize("case", CASES)
def test_texts_without_words_have_no_features(case: str) -> None:
    features, lexicon, _ = build(**CASES[case])
    columns: dict[str, list[str]] = {name: [] for name in lexicon.columns}
    result = features(words_of(lexicon, ["", ""], columns))
    assert result.shape == (2, 0, features.d_out)
    assert features.table(lexicon.encode([]), CPU).vectors.shape == (0, features.d_forms)


def test_a_word_without_characters_has_zeros() -> None:
    for case in ("characters by lstm", "characters by cnn"):
        features, lexicon, _ = build(**CASES[case])
        vectors = features.form_vectors(EncodedForms.of(lexicon.encode(["", "bird"]), CPU))
        assert not vectors[0].any()
        assert vectors[1].any()


def test_no_features_have_size_zero() -> None:
    """A model of only n-grams has no features."""
    features, lexicon, _ = build()
    assert features.d_out == 0
    assert features(batch(lexicon)).shape == (len(TEXTS), 8, 0)


def test_slices_of_a_batch_count_their_words() -> None:
    _, lexicon, _ = build(**EVERYTHING)
    words = batch(lexicon)
    assert words.num_real == len(WORDS)
    part = words.slice_rows(slice(0, 2))
    assert part.num_real == 5
    assert part.numbers.tolist() == words.numbers[:2].tolist()
    assert part.columns.shape == (2, 8, 2)
    alone = words_of(lexicon, TEXTS[:1], {name: COLUMNS[name][:4] for name in COLUMNS})
    assert alone.mask is None
    assert alone.num_real == alone.slice_rows(slice(0, 1)).num_real == 4


def test_tables_are_initialized_with_deviation_0_1() -> None:
    lexicon = Lexicon.train({chr(0x4E00 + n): 1 for n in range(2000)})
    features = WordFeatures(SentenceFeatureSpecification(d_words=10), lexicon)
    assert features.words is not None
    assert np.isclose(features.words.weight.std().item(), 0.1, rtol=0.05)
