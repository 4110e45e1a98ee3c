"""The memory of word forms: what it gives is what the features compute, whatever was asked for and forgotten before."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.engine import CachedWeights
from ensue.models import word_features
from ensue.models.word_features import EncodedForms, FormCache, WordFeatures
from ensue.models.word_specification import FeatureSpecification
from ensue.text.lexicon import Lexicon
from models import CPU, lexicon_of
from training.tiny import some_slow

LEXICON = lexicon_of(characters=True, longest_affix=2)
WORDS = ["the", "The", "bird", "birds", "xyz", "", "1984", "a" * 40]


def memory(most: int = 1 << 16) -> FormCache:
    torch.manual_seed(0)
    specification = FeatureSpecification(d_words=4, characters="cnn", d_character=3, d_characters=4, affixes=2)
    return FormCache(WordFeatures(specification, LEXICON).eval(), LEXICON, CPU, max_forms=most)


REFERENCE = {
    word: memory().features.form_vectors(EncodedForms.of(LEXICON.encode([word]), CPU))[0].detach() for word in WORDS
}


def agrees(found: FormCache, words: list[str]) -> None:
    """Ask for the words and compare."""
    table, index = found.look_up(words)
    assert len(index) == len(words)
    assert table.keys[index].tolist() == LEXICON.encode(words).keys.tolist()
    for word, vector in zip(words, table.vectors[index], strict=True):
        torch.testing.assert_close(vector, REFERENCE[word])


@given(
    calls=st.lists(st.lists(st.sampled_from(WORDS), max_size=8), max_size=6),
    most=st.integers(0, 6),
    room=st.integers(1, 5),
)
def test_it_gives_what_the_features_compute(calls: list[list[str]], most: int, room: int) -> None:
    """Also when one call has more forms than are kept, when it has forgotten, and when it needs more room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_features, "MIN_ROWS", room)
        found = memory(most)
        for words in calls:
            agrees(found, words)
            assert len(found._cached.table.vectors) == len(found._cached.table.keys) <= most + len(set(words))


@pytest.mark.slow
def test_many_forms_in_little_pieces() -> None:
    """More than there is room for at first."""
    found, words = memory(), [f"w{n}" for n in range(3000)]
    for start in range(0, 3000, 100):
        found.look_up(words[start : start + 100])
    features = found.features.table(LEXICON.encode(words), CPU)
    table, index = found.look_up(words)
    torch.testing.assert_close(table.vectors[index], features.vectors)
    assert found._cached.table.keys[index].tolist() == features.keys.tolist()


def test_it_grows_with_and_without_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_features, "MIN_ROWS", 1)
    found = memory()
    with torch.inference_mode():
        agrees(found, ["the", "bird"])
    agrees(found, ["xyz", "the"])
    with torch.inference_mode():
        agrees(found, ["1984", "birds", "xyz"])
    agrees(found, ["The"])


def test_equal_words_have_one_row() -> None:
    found = memory()
    index = found.look_up(["bird", "the", "bird", "The", "bird"])[1].tolist()
    assert index[0] == index[2] == index[4]
    assert len(set(index)) == len(found._cached.table.vectors) == 3


def test_only_what_is_new_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = memory(), []
    encode = LEXICON.encode
    monkeypatch.setattr(Lexicon, "encode", lambda self, forms: asked.append(list(forms)) or encode(forms))
    found.look_up(["bird", "the", "bird"])
    first = found.look_up(["the", "bird"])[1].tolist()
    found.look_up(["xyz", "the", "1984", "xyz"])
    assert asked == [["bird", "the"], ["xyz", "1984"]]
    assert found.look_up(["the", "bird"])[1].tolist() == first


def test_too_many_are_forgotten_at_the_next_call() -> None:
    found = memory(most=3)
    found.look_up(["the", "bird", "xyz"])
    found.look_up(["1984"])
    assert len(found._cached.table.vectors) == 4
    agrees(found, ["xyz"])
    assert len(found._cached.table.vectors) == 1


def test_long_ones_count_as_several() -> None:
    """A server that is asked for long words would else grow by each of them."""
    found = memory(most=20)
    for number in range(10):
        found.look_up([f"{number}" + 1000 * "a"])
        assert len(found._cached.table.vectors) <= 2


@pytest.mark.parametrize("part", ["words", "affixes", "characters"])
def test_changed_weights_are_noticed(part: str) -> None:
    """Also where torch has no sign of a change. Where weights are held, nobody looks."""
    found = memory()
    agrees(found, ["bird", "the"])
    for parameter in getattr(found.features, part).parameters():
        parameter.data.copy_(0.5 * parameter)
    with CachedWeights().used():
        agrees(found, ["the"])
    expected = found.features.form_vectors(EncodedForms.of(LEXICON.encode(["the"]), CPU))
    table, index = found.look_up(["the"])
    torch.testing.assert_close(table.vectors[index], expected)
    assert not torch.equal(table.vectors[index[0]], REFERENCE["the"])


def test_a_changed_number_of_the_characters_is_noticed() -> None:
    found = memory()
    agrees(found, ["bird"])
    found.features.characters.register_forward_hook(lambda _, args, y: 2 * y)
    table, index = found.look_up(["bird"])
    torch.testing.assert_close(table.vectors[index[0], 4:8], 2 * REFERENCE["bird"][4:8])


def test_no_words() -> None:
    found = memory()
    assert found.look_up([])[1].tolist() == []
    assert found._cached.table.vectors.shape == (0, found.features.d_forms)


def test_what_was_given_holds() -> None:
    """Whatever comes after: more words, more room, forgetting."""
    found = memory(most=5)
    table, index = found.look_up(WORDS)
    before = table.vectors.clone()
    for start in range(0, 5000, 1000):
        found.look_up([f"w{n}" for n in range(start, start + 1000)])
    torch.testing.assert_close(table.vectors, before, rtol=0, atol=0)
    for word, vector in zip(WORDS, table.vectors[index], strict=True):
        torch.testing.assert_close(vector, REFERENCE[word])


@pytest.mark.slow
@pytest.mark.parametrize("most", some_slow([0, 20, 1 << 16], 20))
def test_threads_share_it(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one adds while another works out its own, and what is forgotten meanwhile, mixes nothing up."""
    monkeypatch.setattr(word_features, "MIN_ROWS", 2)
    found, words = memory(most), [f"w{n % 7}{n % 3}{n}" for n in range(60)]
    expected = memory().features.table(LEXICON.encode(words), CPU).vectors
    start = Barrier(8)

    def ask(number: int) -> None:
        choose = random.Random(number)
        start.wait()
        for _ in range(20):
            chosen = choose.choices(range(60), k=9)
            table, index = found.look_up([words[n] for n in chosen])
            torch.testing.assert_close(table.vectors[index], expected[chosen])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert len(found._cached.table.keys) == len(found._cached.numbers) <= most + 60
