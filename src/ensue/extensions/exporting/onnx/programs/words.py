"""Inputs of a tagger or classifier: words as ids of its vocabularies."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from ensue.text.lexicon import NEW_CHARACTERS, Lexicon, UnknownCounts
from ensue.text.tokens import words_in

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
lexicon = Lexicon.from_json(config["lexicon"])
unknown = UnknownCounts()
readers = []
if config["readers"]:  # the inputs of language models in the tagger or classifier
    from subwords import make_reader

    readers = list(map(make_reader, config["readers"]))


def split(text):
    """Return the words of a text, with the blanks before each word if the model reads blanks."""
    return words_in(text, config["splitter"], blanks=config["blanks"])


def pad_rows(rows):
    """Return rows of different lengths as an array, padded with zeros."""
    array = np.zeros((len(rows), max(map(len, [*rows, [0]]))), np.int64)
    for row, numbers in zip(array, rows, strict=True):
        row[: len(numbers)] = numbers
    return array


def count_unknown(arrays, numbers):
    """Count the words without a pretrained vector, and the words with unknown characters."""
    names = {x.name for x in model.get_inputs()}
    has_new = [0 in ids[:size] for ids, size in zip(arrays["characters"], arrays["lengths_of_words"], strict=True)]
    if "vectors" in names:
        unknown.add("have no pretrained vector", sum(not arrays["vectors"][n] for n in numbers), len(numbers))
    if "characters" in names:
        unknown.add(NEW_CHARACTERS, sum(has_new[n] for n in numbers), len(numbers))


def warn_unknown():
    """Print a notice if more than a twentieth of the words are unknown."""
    if line := unknown.line():
        print(line, file=sys.stderr)


def inputs(*texts):
    """Return the inputs of the model for a list of texts, or for two lists with the texts of pairs.

    A text is a list of words. Each distinct word is encoded once; texts are lists of the numbers of words.
    """
    forms = sorted({word for column in texts for words in column for word in words}) or [""]
    numbers = {form: number for number, form in enumerate(forms)}
    arrays = lexicon.encode(forms)._asdict()
    arrays["lengths_of_words"] = arrays.pop("lengths")
    count_unknown(arrays, [numbers[word] for column in texts for words in column for word in words])
    for suffix, column in zip(("", "_2"), texts, strict=False):
        arrays[f"numbers{suffix}"] = pad_rows([[numbers[word] for word in words] for words in column])
        arrays[f"lengths{suffix}"] = list(map(len, column))
    for other in readers:
        arrays |= other.inputs(*texts)
    if "columns" in {x.name for x in model.get_inputs()}:
        sys.exit("this model also reads other columns of each word; pass them to the graph")
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    return {x.name: np.asarray(arrays[x.name], types[x.type]) for x in model.get_inputs() if x.name in arrays}
