"""Inputs of the layers of a language model: words as subwords, in windows where a text is longer than these take."""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ensue.tasks.texts.windows import text_windows


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


class Reader:
    """Makes the inputs for layers that read subwords."""

    def __init__(self, settings):
        self.settings, self.tokenizer = settings, loaded(settings["tokenizer"])

    def body(self, parts):
        """The subwords of a text, or of the two of a pair, their segments, and those that make up each word."""
        ids, segments, words = [], [], []
        for number, part in enumerate(parts):
            between = self.settings["between"] if number else []
            ids, segments = ids + between, segments + [0] * len(between)
            gap, blank = [], self.settings["first"]
            for word in part:
                if not word.strip():
                    words.append([])
                    continue
                ids += gap
                found = self.tokenizer.encode(blank + word, add_special_tokens=False).ids
                places = range(len(ids), len(ids) + len(found))
                words.append({"first": places[:1], "last": places[-1:]}.get(self.settings["pooling"], places))
                ids += found
                gap, blank = self.settings["gap"], self.settings["blank"]
            segments += [number] * (len(ids) - len(segments))
        return ids, segments, words

    def read(self, parts):
        """The windows of a text, with their segments, and the places (window, place) of the subwords of each word."""
        (ids, segments, words), begin, end = self.body(parts), self.settings["begin"], self.settings["end"]
        most = self.settings["most"] and max(1, self.settings["most"] - len(begin) - len(end))
        if len(parts) > 1 and most and len(ids) > most:
            sys.exit(f"a pair of {len(ids):,} subwords; this model reads up to {most:,}")
        rows, place_of = [], {}
        spans = text_windows(0, len(ids), most or len(ids), is_causal=self.settings["causal"])
        for number, (_, start, stop, first, last) in enumerate(spans):
            ends = segments[-1:] * len(end) or [0] * len(end)
            rows.append((begin + ids[start:stop] + end, [0] * len(begin) + segments[start:stop] + ends))
            place_of |= {place: (number, len(begin) + place - start) for place in range(first, last)}
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
        if self.settings["causal"]:  # the last position of a text, else the first
            last = [first + len(one) - 1 for first, (one, _) in zip(firsts[0], read[0], strict=True)]
            found["own"] = [number * width + len(rows[number][0]) - 1 for number in last]
        else:
            found["own"] = [first * width for first in firsts[0]]
        return {self.settings["prefix"] + name: values for name, values in found.items()}
