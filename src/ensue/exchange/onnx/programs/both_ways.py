"""Words in both directions: what the layers of a bidirectional language model are given, with numpy and tokenizers."""

import numpy as np
from subwords import loaded

CHARACTER = {"sentence begin": 256, "sentence end": 257, "begin": 258, "end": 259, "padding": 260}
FIRST_WORD = 2
"""The number of the first distinct word, behind both boundaries."""


class Ways:
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
        bodies = [[CHARACTER["sentence begin"]], [CHARACTER["sentence end"]]]
        bodies += [list(word.encode("utf-8", "ignore")[: self.settings["longest"] - 2]) for word in words]
        found = np.full((len(bodies), self.settings["longest"]), CHARACTER["padding"])
        for row, body in zip(found, bodies, strict=True):
            row[: len(body) + 2] = [CHARACTER["begin"], *body, CHARACTER["end"]]
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
