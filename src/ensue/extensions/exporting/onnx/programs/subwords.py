"""Inputs of fine-tuned language models: words are encoded as subwords, and long texts are split into windows."""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ensue.tasks.texts.framing import Framing


def load_tokenizer(name):
    """Return a tokenizer that encodes the name of a special token in a text as ordinary text."""
    tokenizer = Tokenizer.from_file(str(Path(__file__).parent / name))
    tokenizer.encode_special_tokens = True
    return tokenizer


def make_reader(settings):
    """Return the reader of inputs for a language model: subwords, or characters of words for models such as ELMo."""
    if "longest" not in settings:
        return Reader(settings)
    from both_ways import WordReader  # noqa: PLC0415 (exported only with such models)

    return WordReader(settings)


class Encoder:
    """A tokenizer with the interface that `Framing` needs."""

    def __init__(self, name):
        self.tokenizer = load_tokenizer(name)

    def encode(self, text):
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int64)


class Reader:
    """A reader of texts for a language model that reads subwords."""

    def __init__(self, settings):
        self.settings = settings
        self.framing = Framing(tokenizer=Encoder(settings["tokenizer"]), **settings["framing"])

    def subwords(self, texts):
        """Return the subwords of a text or pair, their segments, and the indices of the subwords of each word."""
        ids, segments, words = [], [], []
        for number, text in enumerate(texts):
            between, encoded = list(self.framing.between if number else ()), self.framing.split(text)
            ids, segments = ids + between, segments + [0] * len(between) + [number] * len(encoded.ids)
            indices = len(ids) + np.flatnonzero(~encoded.is_gap)
            for word in np.split(indices, np.cumsum(encoded.counts))[:-1]:
                words.append({"first": word[:1], "last": word[-1:]}.get(self.settings["pooling"], word).tolist())
            ids += encoded.ids.tolist()
        return ids, segments, words

    def read(self, texts):
        """Return the windows of a text or pair, as (ids, segments), and the (window, index) of each word's subwords."""
        (ids, segments, words), framing = self.subwords(texts), self.framing
        begin, end = len(framing.begin), len(framing.end)
        spans = framing.windows(len(ids))
        if len(texts) > 1 and len(spans) > 1:
            sys.exit(f"a pair of {len(ids):,} subwords; this model reads up to {framing.max_positions - begin - end:,}")
        windows, positions = [], {}
        for number, (_, start, stop, first, last) in enumerate(spans):
            window_segments = [0] * begin + segments[start:stop] + (segments[-1:] * end or [0] * end)
            windows.append((framing.add_frame(ids[start:stop]).tolist(), window_segments))
            positions |= {index: (number, begin + index - start) for index in range(first, last)}
        return windows, [[positions[index] for index in word] for word in words]

    def inputs(self, *texts):
        """Return the inputs for one or two lists of texts, like `words.inputs`. Windows of all texts are rows."""
        joint, is_max = self.settings["joint"], self.settings["pooling"] == "max"
        groups = [list(zip(*texts, strict=True))] if joint else [[(words,) for words in column] for column in texts]
        rows, read = [], [[self.read(item) for item in group] for group in groups]
        first_rows = [[0] * len(group) for group in groups]
        for group, firsts in zip(read, first_rows, strict=True):
            for number, (windows, _) in enumerate(group):
                firsts[number] = len(rows)
                rows += windows
        width = max(len(ids) for ids, _ in rows)
        arrays = {
            "ids": [ids + [0] * (width - len(ids)) for ids, _ in rows],
            "segments": [segments + [0] * (width - len(segments)) for _, segments in rows],
            "lengths_of_windows": [len(ids) for ids, _ in rows],
        }
        for suffix, group, firsts in zip(("", "_2"), read, first_rows, strict=False):
            sizes = max(len(words) for _, words in group), max([1, *(len(w) for _, words in group for w in words)])
            indices, weights = np.zeros((len(group), *sizes), np.int64), np.zeros((len(group), *sizes), np.float32)
            for row, (first, (_, words)) in enumerate(zip(firsts, group, strict=True)):
                for word, subwords in enumerate(words):
                    indices[row, word, : len(subwords)] = [(first + n) * width + index for n, index in subwords]
                    weights[row, word, : len(subwords)] = 1 if is_max else 1 / max(1, len(subwords))
            arrays |= {f"places{suffix}": indices, f"weights{suffix}": weights}
        if self.framing.is_causal:  # the vector of a text is at its last position, otherwise at its first position
            last = [first + len(windows) - 1 for first, (windows, _) in zip(first_rows[0], read[0], strict=True)]
            arrays["own"] = [number * width + len(rows[number][0]) - 1 for number in last]
        else:
            arrays["own"] = [first * width for first in first_rows[0]]
        return {self.settings["prefix"] + name: values for name, values in arrays.items()}
