"""A model from sequence to sequence with onnxruntime, numpy and tokenizers.

python predict.py < sources    a source on each line, its columns between tabs; prints its output, as `ensue predict`
"""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from subwords import reader as reader_of
from tokenizers import Tokenizer

from ensue.text.words import written

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
SOURCE, TARGET = config["source"], config["target"]
reader, writer = (Tokenizer.from_file(str(HERE / f"{side}.json")) for side in ("source", "target"))
encoder, decoder = (onnxruntime.InferenceSession(HERE / f"{part}.onnx") for part in ("encoder", "decoder"))
NEXT = [output.name for output in decoder.get_outputs()]
readers = list(map(reader_of, config["readers"]))  # of the layers of other models


def read(columns):
    """The inputs for a source, and the words of it that have no ids but can be copied."""
    ids, words, copied = [], [], {}
    for place, text in enumerate(columns):
        if place in config["names"]:
            names = [name for name in re.split(config["between_names"], text) if name]
            ids += [SOURCE["names"].get(name, SOURCE["special"]["<unknown>"]) for name in names]
            continue
        whole = SOURCE["before"] + text if text else text
        ids += [SOURCE["special"]["<separator>"]] if ids else []
        words += [""] * (len(ids) - len(words))
        found = reader.encode(whole, add_special_tokens=False)
        for id, (start, end) in zip(found.ids, found.offsets, strict=True):
            is_copied = config["copies"] and id == SOURCE["unknown"]
            ids.append(copied.setdefault(whole[start:end], SOURCE["size"] + len(copied)) if is_copied else id)
            words.append(whole[start:end])
    words, most = words + [""] * (len(ids) - len(words)), config["source_tokens"] or None
    ids, words = [*ids[:most], SOURCE["special"]["<end>"]], [*words[:most], ""]
    found = {"ids": [ids], "lengths": [len(ids)]}
    for other in readers:
        found |= other.inputs([words])
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    return {x.name: np.asarray(found[x.name], types[x.type]) for x in encoder.get_inputs()}, list(copied)


def blocked(scores, history):
    """The scores without what may not come next."""
    scores[:, config["forbidden"]] = -math.inf
    if len(history[0]) < config["min_tokens"]:
        scores[:, TARGET["special"]["<end>"]] = -math.inf
    n = config["no_repeat_ngram"]
    for row, ids in enumerate(history if n else []):
        last = ids[len(ids) - n + 1 :]
        scores[row, [ids[t + n - 1] for t in range(len(ids) - n + 1) if ids[t : t + n - 1] == last]] = -math.inf
    return scores


def search(source):
    """The best output of a beam search: of equal ones the earlier parent, then the smaller id."""
    begin, end = TARGET["special"]["<begin>"], TARGET["special"]["<end>"]
    start = encoder.run(None, source)
    state = {x.name: leaf for x, leaf in zip(encoder.get_outputs(), start, strict=True)}
    state = {x.name: state[x.name] for x in decoder.get_inputs() if x.name in state}
    limit = min(config["most"], math.ceil(source["ids"].size * config["ratio"]) + config["more"])
    alpha = config["length_penalty"]
    history, totals, last, best = [[]], np.zeros(1), [begin], {True: (-math.inf, []), False: (-math.inf, [])}
    for length in range(1, limit + 2):
        scores, *leaves = decoder.run(NEXT, {"ids": np.array(last, np.int64), **state})
        state |= {name.replace("next", "state", 1): leaf for name, leaf in zip(NEXT[1:], leaves, strict=True)}
        scores = scores - scores.max(1, keepdims=True)
        scores = blocked(scores - np.log(np.exp(scores).sum(1, keepdims=True)), history).astype(np.float64)
        sums = (totals[:, None] + scores).ravel()
        chosen = [place for place in np.argsort(-sums, kind="stable")[: config["beams"]] if sums[place] > -math.inf]
        going = []
        for place in chosen:
            parent, id = divmod(int(place), scores.shape[1])
            if id == end:
                best[True] = max(best[True], (sums[place] / length**alpha, history[parent]), key=lambda one: one[0])
            elif length <= limit:
                going.append((sums[place], parent, id))
        if length > limit:
            for total, tokens in zip(totals, history, strict=True):
                best[False] = max(best[False], (total / (length - 1) ** alpha, tokens), key=lambda one: one[0])
        if not going or going[0][0] / (limit + 1) ** alpha <= best[True][0]:
            break
        totals, rows, last = (list(column) for column in zip(*going, strict=True))
        totals, history = np.array(totals), [[*history[row], id] for row, id in zip(rows, last, strict=True)]
        state = {name: leaf[rows] for name, leaf in state.items()}
    return best[best[True][0] > -math.inf][1]


def text_of(ids, copied):
    """The text of an output."""
    ids = [id for id in ids if id not in TARGET["special"].values()]
    if TARGET["words"] is None:
        return writer.decode(ids).removeprefix(TARGET["before"])
    words = [copied[id - SOURCE["size"]] if id >= TARGET["size"] else writer.id_to_token(id) for id in ids]
    return written(words, joins_marks=TARGET["words"] == "simple")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(f"{sys.argv[1]}: this program takes no arguments; `ensue predict` has --glossary and --keep-markup")
    for line in sys.stdin:
        source, copied = read(line.rstrip("\r\n").split("\t"))
        print(re.sub(r"[\r\n\t]", " ", text_of(search(source), copied)))
