"""The cache of word forms returns the vectors of the features, whatever was looked up and evicted before."""

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


def form_cache(max_forms: int = 1 << 16) -> FormCache:
    torch.manual_seed(0)
    specification = FeatureSpecification(d_words=4, characters="cnn", d_character=3, d_characters=4, affixes=2)
    return FormCache(WordFeatures(specification, LEXICON).eval(), LEXICON, CPU, max_forms=max_forms)


REFERENCE = {
    word: form_cache().features.form_vectors(EncodedForms.of(LEXICON.encode([word]), CPU))[0].detach() for word in WORDS
}


def assert_agrees(cache: FormCache, words: list[str]) -> None:
    """Look up the words and compare with the reference."""
    table, index = cache.look_up(words)
    assert len(index) == len(words)
    assert table.keys[index].tolist() == LEXICON.encode(words).keys.tolist()
    for word, vector in zip(words, table.vectors[index], strict=True):
        torch.testing.assert_close(vector, REFERENCE[word])


@given(
    calls=st.lists(st.lists(st.sampled_from(WORDS), max_size=8), max_size=6),
    max_forms=st.integers(0, 6),
    min_rows=st.integers(1, 5),
)
def test_look_up_returns_the_vectors_of_the_features(calls: list[list[str]], max_forms: int, min_rows: int) -> None:
    """Some calls have more forms than the cache keeps, follow evictions, or need a larger table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_features, "MIN_ROWS", min_rows)
        cache = form_cache(max_forms)
        for words in calls:
            assert_agrees(cache, words)
            assert len(cache._cached.table.vectors) == len(cache._cached.table.keys) <= max_forms + len(set(words))


@pytest.mark.slow
def test_many_calls_grow_the_table() -> None:
    cache, words = form_cache(), [f"w{n}" for n in range(3000)]
    for start in range(0, 3000, 100):
        cache.look_up(words[start : start + 100])
    features = cache.features.table(LEXICON.encode(words), CPU)
    table, index = cache.look_up(words)
    torch.testing.assert_close(table.vectors[index], features.vectors)
    assert cache._cached.table.keys[index].tolist() == features.keys.tolist()


def test_the_table_grows_with_and_without_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_features, "MIN_ROWS", 1)
    cache = form_cache()
    with torch.inference_mode():
        assert_agrees(cache, ["the", "bird"])
    assert_agrees(cache, ["xyz", "the"])
    with torch.inference_mode():
        assert_agrees(cache, ["1984", "birds", "xyz"])
    assert_agrees(cache, ["The"])


def test_equal_words_have_one_row() -> None:
    cache = form_cache()
    index = cache.look_up(["bird", "the", "bird", "The", "bird"])[1].tolist()
    assert index[0] == index[2] == index[4]
    assert len(set(index)) == len(cache._cached.table.vectors) == 3


def test_only_new_forms_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, encoded = form_cache(), []
    encode = LEXICON.encode
    monkeypatch.setattr(Lexicon, "encode", lambda self, forms: encoded.append(list(forms)) or encode(forms))
    cache.look_up(["bird", "the", "bird"])
    first = cache.look_up(["the", "bird"])[1].tolist()
    cache.look_up(["xyz", "the", "1984", "xyz"])
    assert encoded == [["bird", "the"], ["xyz", "1984"]]
    assert cache.look_up(["the", "bird"])[1].tolist() == first


def test_too_many_forms_are_evicted_at_the_next_call() -> None:
    cache = form_cache(max_forms=3)
    cache.look_up(["the", "bird", "xyz"])
    cache.look_up(["1984"])
    assert len(cache._cached.table.vectors) == 4
    assert_agrees(cache, ["xyz"])
    assert len(cache._cached.table.vectors) == 1


def test_long_forms_count_as_several() -> None:
    """Otherwise the memory of a server would grow with requests of long words."""
    cache = form_cache(max_forms=20)
    for number in range(10):
        cache.look_up([f"{number}" + 1000 * "a"])
        assert len(cache._cached.table.vectors) <= 2


@pytest.mark.parametrize("part", ["words", "affixes", "characters"])
def test_changed_weights_clear_the_cache(part: str) -> None:
    """Torch's version of the weights does not change. `CachedWeights.used` skips the comparison."""
    cache = form_cache()
    assert_agrees(cache, ["bird", "the"])
    for parameter in getattr(cache.features, part).parameters():
        parameter.data.copy_(0.5 * parameter)
    with CachedWeights().used():
        assert_agrees(cache, ["the"])
    expected = cache.features.form_vectors(EncodedForms.of(LEXICON.encode(["the"]), CPU))
    table, index = cache.look_up(["the"])
    torch.testing.assert_close(table.vectors[index], expected)
    assert not torch.equal(table.vectors[index[0]], REFERENCE["the"])


def test_a_hook_of_the_characters_clears_the_cache() -> None:
    cache = form_cache()
    assert_agrees(cache, ["bird"])
    cache.features.characters.register_forward_hook(lambda _, args, y: 2 * y)
    table, index = cache.look_up(["bird"])
    torch.testing.assert_close(table.vectors[index[0], 4:8], 2 * REFERENCE["bird"][4:8])


def test_looking_up_no_words_returns_no_rows() -> None:
    cache = form_cache()
    assert cache.look_up([])[1].tolist() == []
    assert cache._cached.table.vectors.shape == (0, cache.features.d_forms)


def test_returned_tables_do_not_change() -> None:
    """Later calls add words, enlarge the table and evict forms."""
    cache = form_cache(max_forms=5)
    table, index = cache.look_up(WORDS)
    before = table.vectors.clone()
    for start in range(0, 5000, 1000):
        cache.look_up([f"w{n}" for n in range(start, start + 1000)])
    torch.testing.assert_close(table.vectors, before, rtol=0, atol=0)
    for word, vector in zip(WORDS, table.vectors[index], strict=True):
        torch.testing.assert_close(vector, REFERENCE[word])


@pytest.mark.slow
@pytest.mark.parametrize("max_forms", some_slow([0, 20, 1 << 16], 20))
def test_threads_share_the_cache(max_forms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads add and evict forms at the same time."""
    monkeypatch.setattr(word_features, "MIN_ROWS", 2)
    cache, words = form_cache(max_forms), [f"w{n % 7}{n % 3}{n}" for n in range(60)]
    expected = form_cache().features.table(LEXICON.encode(words), CPU).vectors
    start = Barrier(8)

    def look_up(number: int) -> None:
        choose = random.Random(number)
        start.wait()
        for _ in range(20):
            numbers = choose.choices(range(60), k=9)
            table, index = cache.look_up([words[n] for n in numbers])
            torch.testing.assert_close(table.vectors[index], expected[numbers])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look_up, range(8)))
    assert len(cache._cached.table.keys) == len(cache._cached.numbers) <= max_forms + 60
