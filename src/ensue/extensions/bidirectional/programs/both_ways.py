"""Conversion of texts to the inputs of a bidirectional language model, with numpy and tokenizers."""

import numpy as np
from subwords import load_tokenizer

from ensue.text.character_ngrams import BOUNDARIES, PADDING, word_characters

FIRST_WORD = 2
"""The index of the first distinct word, after both boundaries."""


class WordReader:
    """A converter of words to the inputs of layers that read from left to right and from right to left."""

    def __init__(self, settings):
        self.settings, self.tokenizer = settings, load_tokenizer(settings["tokenizer"])

    def lowered(self, word):
        return word.lower() if self.settings["lowercase"] else word

    def words(self, text):
        """Return the words of a text."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        return [self.lowered(text[start:end]) for start, end in offsets]

    def id(self, word):
        """Return the id of a word in the vocabulary."""
        number = self.tokenizer.token_to_id(word)
        return self.settings["unknown"] if number is None else number

    def encode(self, words):
        """Return a row for each boundary and word: its bytes, padded, or its id if the model reads no characters."""
        if self.settings["longest"] is None:
            return np.array([1, 1, *map(self.id, words)])
        rows = word_characters(words, max_length=self.settings["longest"])
        padded = np.full((FIRST_WORD + len(words), self.settings["longest"]), PADDING)
        padded[:FIRST_WORD, : BOUNDARIES.shape[1]] = BOUNDARIES
        padded[FIRST_WORD:, : rows.shape[1]] = rows
        return padded

    def read(self, texts):
        """Return the inputs for texts, which are lists of words."""
        texts = [list(map(self.lowered, words)) for words in texts]
        number_of = {word: n for n, word in enumerate(dict.fromkeys(w for words in texts for w in words), FIRST_WORD)}
        rightward, leftward, ids = np.zeros((3, len(texts), max(map(len, texts))), np.int64)
        for row, words in enumerate(texts):
            numbers = [number_of[word] for word in words]
            rightward[row, : len(words)], leftward[row, : len(words)] = numbers, numbers[::-1]
            ids[row, : len(words)] = list(map(self.id, words))
        return {
            "distinct": self.encode(list(number_of)), "rightward": rightward, "leftward": leftward,
            "lengths_of_windows": np.array(list(map(len, texts))), "ids": ids,
        }  # fmt: skip

    def inputs(self, *texts):
        """Return the inputs for one or two lists of texts, with the same names as `inputs` in `words.py`."""
        all_texts = [words for group in texts for words in group]
        arrays, width, row = self.read(all_texts), max(map(len, all_texts)), 0
        for suffix, group in zip(("", "_2"), texts, strict=False):
            shape = len(group), max(map(len, group)), 1
            places, weights = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
            for n, words in enumerate(group):
                places[n, : len(words), 0] = row * width + np.arange(len(words))
                weights[n, : len(words)] = 1
                row += 1
            arrays |= {f"places{suffix}": places, f"weights{suffix}": weights}
        return {self.settings["prefix"] + name: values for name, values in arrays.items()}
