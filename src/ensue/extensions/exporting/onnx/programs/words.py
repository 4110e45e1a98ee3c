"""Words as numbers: the vocabularies of a tagger or classifier, with numpy alone."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from ensue.text.lexicon import NEW_CHARACTERS, Lacking, Lexicon
from ensue.text.tokens import words_in

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
lexicon = Lexicon.from_json(config["lexicon"])
unknown = Lacking()
readers = []
if config["readers"]:  # layers of language models, which read subwords
    from subwords import reader

    readers = list(map(reader, config["readers"]))


def split(text):
    """The words of a text; if the model reads blanks, each with those before it."""
    return words_in(text, config["splitter"], blanks=config["blanks"])


def padded(rows):
    """Rows of different lengths as one array, zeros behind them."""
    found = np.zeros((len(rows), max(map(len, [*rows, [0]]))), np.int64)
    for row, numbers in zip(found, rows, strict=True):
        row[: len(numbers)] = numbers
    return found


def count_unknown(found, numbers):
    """Counts what words lack: a pretrained vector, or known characters."""
    used = {x.name for x in model.get_inputs()}
    new = [0 in ids[:size] for ids, size in zip(found["characters"], found["lengths_of_words"], strict=True)]
    if "vectors" in used:
        unknown.add("have no pretrained vector", sum(not found["vectors"][n] for n in numbers), len(numbers))
    if "characters" in used:
        unknown.add(NEW_CHARACTERS, sum(new[n] for n in numbers), len(numbers))


def say_unknown():
    """Says what more than a twentieth of the words lack."""
    if line := unknown.line():
        print(line, file=sys.stderr)


def inputs(*texts):
    """The inputs of the model for a list of texts, each a list of words; for pairs of texts two such lists."""
    forms = sorted({word for part in texts for words in part for word in words}) or [""]
    place = {form: number for number, form in enumerate(forms)}
    found = lexicon.encode(forms)._asdict()
    found["lengths_of_words"] = found.pop("lengths")
    count_unknown(found, [place[word] for part in texts for words in part for word in words])
    for suffix, part in zip(("", "_2"), texts, strict=False):
        found[f"numbers{suffix}"] = padded([[place[word] for word in words] for words in part])
        found[f"lengths{suffix}"] = list(map(len, part))
    for other in readers:
        found |= other.inputs(*texts)
    if "columns" in {x.name for x in model.get_inputs()}:
        sys.exit("this model also reads other columns of each word, which texts do not have; its graph takes them")
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    return {x.name: np.asarray(found[x.name], types[x.type]) for x in model.get_inputs() if x.name in found}
