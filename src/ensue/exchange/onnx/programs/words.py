"""Words as numbers: the vocabularies of a tagger or classifier, with numpy alone."""

import json
import re
import sys
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
lexicon = config["lexicon"]
WORD = re.compile(config["splitter"], re.IGNORECASE if config["ignore_case"] else 0)
KINDS = ("words", "characters", "affixes", "shapes", "vectors")
ids = {kind: {symbol: id for id, symbol in enumerate(lexicon[kind] or [])} for kind in KINDS}
unknown = Counter()
readers = []
if config["readers"]:  # layers of language models, which read subwords
    from subwords import reader

    readers = list(map(reader, config["readers"]))


def split(text):
    """The words of a text; if the model reads blanks, each with those before it."""
    seen = with_letters(text) if config["marks_are_letters"] else text
    words = [match.span() for match in WORD.finditer(seen) if match[0] != "\n"]
    if config["blanks"] is None or not words:
        return [text[a:b] for a, b in words]
    ends = [end for _, end in words]
    return [config["blanks"] + text[slice(*words[0])], *(text[a:b] for a, b in pairwise(ends))]


def with_letters(text):
    """The text with a letter for each mark or joiner of a letter."""
    seen = before = ""
    for sign in text:
        clings = sign in "\u200c\u200d" or unicodedata.category(sign)[0] == "M"
        before = "\u0250" if clings and (before.isalnum() or before == "_") else sign
        seen += before
    return seen


def normalized(form):
    form = form.lower() if lexicon["lowercase"] else form
    return re.sub(r"\d", "0", form) if lexicon["fold_digits"] else form


def affixes(form):
    form, sizes = normalized(form), range(1, lexicon["longest_affix"] + 1)
    return [f"{form[:n]}-" for n in sizes] + [f"-{form[-n:]}" for n in sizes]


def shape(form):
    form = re.sub(r"[^\W\d_]", lambda m: "X" if m[0].isupper() else "x", form[:32])
    return re.sub(r"([Xx.d-])\1{2,}", r"\1\1\1", re.sub(r"\d", "d", form)[:32])


def key(form):
    """The number of a known word, or one below 0 that follows from the spelling."""
    form = normalized(form)
    return ids["words"].get(form) or ~crc32(form.encode("utf-8", "surrogatepass"))


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
    unknown["words"] += len(numbers)
    unknown["no pretrained vector"] += sum("vectors" in used and not found["vectors"][n] for n in numbers)
    unknown["unknown characters"] += sum("characters" in used and new[n] for n in numbers)


def say_unknown():
    """Says what more than a twentieth of the words lack."""
    for what, count in unknown.items():
        if what != "words" and 20 * count > unknown["words"]:
            share = f"{count / unknown['words']:.0%}"
            print(f"{count:,} of {unknown['words']:,} words ({share}) have {what}", file=sys.stderr)


def inputs(*texts):
    """The inputs of the model for a list of texts, each a list of words; for pairs of texts two such lists."""
    forms = sorted({word for part in texts for words in part for word in words}) or [""]
    place = {form: number for number, form in enumerate(forms)}
    letters = [form if len(form) <= 32 else form[:16] + form[-16:] for form in forms]
    found = {
        "words": [ids["words"].get(normalized(form), 0) for form in forms],
        "characters": padded([[ids["characters"].get(letter, 0) for letter in form] for form in letters]),
        "lengths_of_words": list(map(len, letters)),
        "affixes": [[ids["affixes"].get(affix, 0) for affix in affixes(form)] for form in forms],
        "shapes": [ids["shapes"].get(shape(form), 0) for form in forms],
        "vectors": [ids["vectors"].get(form) or ids["vectors"].get(form.lower(), 0) for form in forms],
        "keys": list(map(key, forms)),
    }
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
