"""Inputs of the layers of a bidirectional language model, with numpy and tokenizers."""

import numpy as np
from subwords import loaded

from ensue.text.character_ngrams import BOUNDARIES, PADDING, word_characters

FIRST_WORD = 2
"""The number of the first distinct word, behind both boundaries."""


class WordReader:
    """Makes the inputs for layers that read words from left to right, and from right to left."""

    def __init__(self, settings):
        self.settings, self.tokenizer = settings, loaded(settings["tokenizer"])

    def lowered(self, word):
        return word.lower() if self.settings["lowercase"] else word

    def words(self, text):
        """The words of a text."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        return [self.lowered(text[start:end]) for start, end in offsets]

    def id(self, word):
        """The id of a word in the vocabulary."""
        found = self.tokenizer.token_to_id(word)
        return self.settings["unknown"] if found is None else found

    def distinct(self, words):
        """Both boundaries and words as their bytes, or as their ids."""
        if self.settings["longest"] is None:
            return np.array([1, 1, *map(self.id, words)])
        rows = word_characters(words, longest=self.settings["longest"])
        found = np.full((FIRST_WORD + len(words), self.settings["longest"]), PADDING)
        found[:FIRST_WORD, : BOUNDARIES.shape[1]] = BOUNDARIES
        found[FIRST_WORD:, : rows.shape[1]] = rows
        return found

    def read(self, texts):
        """The inputs for texts, each a list of words."""
        texts = [list(map(self.lowered, words)) for words in texts]
        number_of = {word: n for n, word in enumerate(dict.fromkeys(w for words in texts for w in words), FIRST_WORD)}
        width = max(map(len, texts))
        rightward, leftward, ids = np.zeros((3, len(texts), width), np.int64)
        for row, words in enumerate(texts):
            numbers = [number_of[word] for word in words]
            rightward[row, : len(words)], leftward[row, : len(words)] = numbers, numbers[::-1]
            ids[row, : len(words)] = list(map(self.id, words))
        return {
            "distinct": self.distinct(list(number_of)),
            "rightward": rightward,
            "leftward": leftward,
            "lengths_of_windows": np.array(list(map(len, texts))),
            "ids": ids,
        }

    def inputs(self, *texts):
        """The inputs for lists of texts, as `words.inputs` has them."""
        all_texts = [words for part in texts for words in part]
        found, width, row = self.read(all_texts), max(map(len, all_texts)), 0
        for suffix, part in zip(("", "_2"), texts, strict=False):
            most = max(map(len, part))
            places, weights = np.zeros((len(part), most, 1), np.int64), np.zeros((len(part), most, 1), np.float32)
            for n, words in enumerate(part):
                places[n, : len(words), 0] = row * width + np.arange(len(words))
                weights[n, : len(words)] = 1
                row += 1
            found |= {f"places{suffix}": places, f"weights{suffix}": weights}
        return {self.settings["prefix"] + name: values for name, values in found.items()}
