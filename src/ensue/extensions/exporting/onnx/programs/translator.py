"""A model from sequence to sequence with onnxruntime, numpy and tokenizers.

python predict.py < sources    a source on each line, its columns between tabs; prints its output, as `ensue predict`
"""

import json
import math
import re
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
from subwords import reader as reader_of
from tokenizers import Tokenizer

from ensue.data.buckets import by_length
from ensue.decode.frontier import Frontier
from ensue.decode.search import BeamSearch
from ensue.text.words import written

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
SOURCE, TARGET = config["source"], config["target"]
reader, writer = (Tokenizer.from_file(str(HERE / f"{side}.json")) for side in ("source", "target"))
encoder, decoder = (onnxruntime.InferenceSession(HERE / f"{part}.onnx") for part in ("encoder", "decoder"))
NEXT = [output.name for output in decoder.get_outputs()]
SIZES = {given.name: given.shape[0] for given in decoder.get_inputs() if given.name != "ids"}
SETTINGS = {name: config[name] for name in ("length_penalty", "min_tokens", "no_repeat_ngram")}
SEARCH = BeamSearch(config["beams"], forbidden=tuple((id,) for id in config["forbidden"]), **SETTINGS)
readers = list(map(reader_of, config["readers"]))  # of the layers of other models


def read(columns):
    """The ids of a source, its words, and those that have no ids but can be copied."""
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
    return [*ids[:most], SOURCE["special"]["<end>"]], [*words[:most], ""], list(copied)


def inputs(sources):
    """The inputs of the encoder for some sources, padded."""
    rows, lengths = [ids for ids, _, _ in sources], [len(ids) for ids, _, _ in sources]
    found = {"ids": [ids + [0] * (max(lengths) - len(ids)) for ids in rows], "lengths": lengths}
    for other in readers:
        found |= other.inputs([words for _, words, _ in sources])
    return {x.name: np.array(found[x.name], np.int64 if "int" in x.type else np.float32) for x in encoder.get_inputs()}


def best_ids(scores, k):
    """The ids of the `k` largest scores of each row (all, if there are fewer), ascending, and the scores."""
    count, size = scores.shape
    groups = max(1, min(64, size // (2 * k)))  # the k-th largest of some maxima is below the k best
    maxima = scores[:, : size // groups * groups].reshape(count, groups, -1).max(1)
    least = np.partition(maxima, -min(k, size), 1)[:, -min(k, size)]
    rows, ids = np.divmod(np.flatnonzero(scores >= least[:, None]), size)
    best = np.lexsort((ids, -scores[rows, ids], rows))  # of equal ones the smaller id
    chosen = np.sort(best[np.searchsorted(rows, np.arange(count))[:, None] + np.arange(min(k, size))], 1)
    return ids[chosen], scores[rows[chosen], ids[chosen]].astype(np.float64)


def search(sources):
    """The best output for each of some sources, by the beam search of ensue."""
    state = dict(zip(SIZES, encoder.run([*SIZES], inputs(sources)), strict=True))
    limits = [min(config["most"], math.ceil(len(ids) * config["ratio"]) + config["more"]) for ids, _, _ in sources]
    frontier = Frontier(SEARCH, [SEARCH.for_input(max_tokens=limit) for limit in limits], TARGET["special"]["<end>"])
    ids = [TARGET["special"]["<begin>"]] * len(sources)
    memory, count = {name: leaf for name, leaf in state.items() if SIZES[name] == "texts"}, len(sources)
    while len(ids):
        scores, *leaves = decoder.run(NEXT, {"ids": np.asarray(ids, np.int64), **state})
        scores[:, frontier.forbidden.always] = -math.inf
        for place in frontier.blocked():
            scores[place] = -math.inf
        rows, ids = frontier.advance(*best_ids(scores, SEARCH.width), None)
        state |= {name.replace("next", "state", 1): leaf for name, leaf in zip(NEXT[1:], leaves, strict=True)}
        state |= {name: leaf[rows] for name, leaf in state.items() if name not in memory}
        if count != (count := len(frontier.live.inputs)):  # all hypotheses of a source share what it is remembered by
            state |= {name: leaf[frontier.live.inputs] for name, leaf in memory.items()}
    return [found[0].ids for found in frontier.results()]


def text_of(ids, copied):
    """The text of an output."""
    ids = [id for id in ids if id not in TARGET["special"].values()]
    if TARGET["words"] is None:
        return writer.decode(ids).removeprefix(TARGET["before"])
    words = [copied[id - SOURCE["size"]] if id >= TARGET["size"] else writer.id_to_token(id) for id in ids]
    return written(words, joins_marks=TARGET["words"] == "simple")


def outputs(sources):
    """The outputs for sources, in order; those of similar length are searched together."""
    found, lengths = {}, np.array([len(ids) for ids, _, _ in sources])
    for some in by_length(lengths, batch_size=config["rows"], batch_tokens=config["tokens"]):
        found |= zip(some.tolist(), search([sources[number] for number in some]), strict=True)
    return [text_of(found[number], copied) for number, (_, _, copied) in enumerate(sources)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(f"{sys.argv[1]}: this program takes no arguments; `ensue predict` has --glossary and --keep-markup")
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # whatever the locale
    while lines := list(islice(sys.stdin, 1 if sys.stdin.isatty() else config["window"])):
        for text in outputs([read(line.rstrip("\r\n").split("\t")) for line in lines]):
            print(re.sub(r"[\r\n\t]", " ", text))
