"""Hashes of character n-grams equal those of a plain loop and of fastText."""

from collections.abc import Iterator
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ensue.text import character_ngrams
from ensue.text.character_ngrams import ngram_hashes


def hashes_of_loop(word: str, min_length: int, max_length: int) -> Iterator[int]:
    letters = f"<{word}>"
    for start in range(len(letters)):
        for stop in range(start + 1, min(start + max_length, len(letters)) + 1):
            length = stop - start
            if length >= min_length and not (length == 1 and (start == 0 or stop == len(letters))):
                value = 2166136261
                for byte in letters[start:stop].encode():
                    value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619) & 0xFFFFFFFF
                yield value


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=4), st.integers(1, 3), st.integers(0, 4))
def test_hashes_equal_those_of_a_plain_loop(words: list[str], least: int, more: int) -> None:
    with mock.patch.object(character_ngrams, "_WORDS_PER_CHUNK", 2):  # several chunks of words
        values, starts = ngram_hashes(words, least, least + more)
    assert len(starts) == len(words) + 1
    for n, word in enumerate(words):
        assert sorted(values[starts[n] : starts[n + 1]].tolist()) == sorted(hashes_of_loop(word, least, least + more))


def test_hashes_equal_those_of_fasttext() -> None:
    """Bytes are signed, unlike in FNV-1a. The numbers are from `ft_hash_bytes` of gensim 4.4.0."""
    values, _ = ngram_hashes(["é", "ab"], 3, 3)
    assert values.tolist() == [1002806231, 1218209508, 1699241756]
