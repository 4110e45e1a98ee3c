"""Inputs of the layers of a language model: words as subwords, in windows where a text is longer than these take."""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ensue.tasks.texts.framing import Framing


def loaded(name):
    """A tokenizer for which a special token that is spelled in a text is text."""
    tokenizer = Tokenizer.from_file(str(Path(__file__).parent / name))
    tokenizer.encode_special_tokens = True
    return tokenizer


def reader(settings):
    """Makes the inputs for the layers of another model."""
    if "longest" not in settings:
        return Reader(settings)
    from both_ways import WordReader  # noqa: PLC0415 (only where it stands beside this)

    return WordReader(settings)


class Encoder:
    """The tokenizer as `Framing` asks it."""

    def __init__(self, name):
        self.tokenizer = loaded(name)

    def encode(self, text):
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int64)


class Reader:
    """Makes the inputs for layers that read subwords."""

    def __init__(self, settings):
        self.settings = settings
        self.framing = Framing(tokenizer=Encoder(settings["tokenizer"]), **settings["framing"])

    def body(self, parts):
        """The subwords of a text, or of the two of a pair, their segments, and those that make up each word."""
        ids, segments, words = [], [], []
        for number, part in enumerate(parts):
            between, found = list(self.framing.between if number else ()), self.framing.split(part)
            ids, segments = ids + between, segments + [0] * len(between) + [number] * len(found.ids)
            places = len(ids) + np.flatnonzero(~found.is_gap)
            for own in np.split(places, np.cumsum(found.counts))[:-1]:
                words.append({"first": own[:1], "last": own[-1:]}.get(self.settings["pooling"], own).tolist())
            ids += found.ids.tolist()
        return ids, segments, words

    def read(self, parts):
        """The windows of a text, with their segments, and the places (window, place) of the subwords of each word."""
        (ids, segments, words), framing = self.body(parts), self.framing
        begin, end = len(framing.begin), len(framing.end)
        spans = framing.windows(len(ids))
        if len(parts) > 1 and len(spans) > 1:
            sys.exit(f"a pair of {len(ids):,} subwords; this model reads up to {framing.most - begin - end:,}")
        rows, place_of = [], {}
        for number, (_, start, stop, first, last) in enumerate(spans):
            own = [0] * begin + segments[start:stop] + (segments[-1:] * end or [0] * end)
            rows.append((framing.framed(ids[start:stop]).tolist(), own))
            place_of |= {place: (number, begin + place - start) for place in range(first, last)}
        return rows, [[place_of[place] for place in word] for word in words]

    def inputs(self, *texts):
        """The inputs for lists of texts, as `words.inputs` has them."""
        joint, most = self.settings["joint"], self.settings["pooling"] == "max"
        groups = [list(zip(*texts, strict=True))] if joint else [[(words,) for words in part] for part in texts]
        rows, read = [], [[self.read(parts) for parts in group] for group in groups]
        firsts = [[0] * len(group) for group in groups]
        for group, some in zip(read, firsts, strict=True):
            for number, (windows_of_one, _) in enumerate(group):
                some[number] = len(rows)
                rows += windows_of_one
        width = max(len(ids) for ids, _ in rows)
        found = {
            "ids": [ids + [0] * (width - len(ids)) for ids, _ in rows],
            "segments": [segments + [0] * (width - len(segments)) for _, segments in rows],
            "lengths_of_windows": [len(ids) for ids, _ in rows],
        }
        for suffix, group, some in zip(("", "_2"), read, firsts, strict=False):
            sizes = max(len(words) for _, words in group), max([1, *(len(w) for _, words in group for w in words)])
            places, weights = np.zeros((len(group), *sizes), np.int64), np.zeros((len(group), *sizes), np.float32)
            for row, (first, (_, words)) in enumerate(zip(some, group, strict=True)):
                for word, pieces in enumerate(words):
                    places[row, word, : len(pieces)] = [(first + number) * width + place for number, place in pieces]
                    weights[row, word, : len(pieces)] = 1 if most else 1 / max(1, len(pieces))
            found |= {f"places{suffix}": places, f"weights{suffix}": weights}
        if self.framing.is_causal:  # the last position of a text, else the first
            last = [first + len(one) - 1 for first, (one, _) in zip(firsts[0], read[0], strict=True)]
            found["own"] = [number * width + len(rows[number][0]) - 1 for number in last]
        else:
            found["own"] = [first * width for first in firsts[0]]
        return {self.settings["prefix"] + name: values for name, values in found.items()}
