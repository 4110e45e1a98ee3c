"""A sequence-to-sequence model with onnxruntime, numpy and tokenizers.

python predict.py < sources    print the output for the source in each line (columns between tabs), like `ensue predict`
"""

import json
import math
import re
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
from subwords import make_reader
from tokenizers import Tokenizer

from ensue.data.buckets import batch_by_length
from ensue.decode.frontier import Frontier
from ensue.decode.search import BeamSearch
from ensue.text.tokenizer import join_words

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
SOURCE, TARGET = config["source"], config["target"]
reader, writer = (Tokenizer.from_file(str(HERE / f"{side}.json")) for side in ("source", "target"))
encoder, decoder = (onnxruntime.InferenceSession(HERE / f"{name}.onnx") for name in ("encoder", "decoder"))
OUTPUTS = [output.name for output in decoder.get_outputs()]
SIZES = {state.name: state.shape[0] for state in decoder.get_inputs() if state.name != "ids"}
SETTINGS = {name: config[name] for name in ("length_penalty", "min_tokens", "no_repeat_ngram")}
SEARCH = BeamSearch(config["beams"], forbidden=tuple((id,) for id in config["forbidden"]), **SETTINGS)
readers = list(map(make_reader, config["readers"]))  # for language models in the encoder


def read(columns):
    """Return the ids of a source, the text of each id, and the unknown words that the output may copy."""
    ids, words, copied = [], [], {}
    for number, column in enumerate(columns):
        if number in config["names"]:
            names = [name for name in re.split(config["between_names"], column) if name]
            ids += [SOURCE["names"].get(name, SOURCE["special"]["<unknown>"]) for name in names]
            continue
        text = SOURCE["before"] + column if column else column
        ids += [SOURCE["special"]["<separator>"]] if ids else []
        words += [""] * (len(ids) - len(words))
        encoding = reader.encode(text, add_special_tokens=False)
        for id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            is_copied = config["copies"] and id == SOURCE["unknown"]
            ids.append(copied.setdefault(text[start:end], SOURCE["size"] + len(copied)) if is_copied else id)
            words.append(text[start:end])
    words, max_tokens = words + [""] * (len(ids) - len(words)), config["source_tokens"] or None
    return [*ids[:max_tokens], SOURCE["special"]["<end>"]], [*words[:max_tokens], ""], list(copied)


def inputs(sources):
    """Return the padded inputs of the encoder for a batch of sources."""
    rows, lengths = [ids for ids, _, _ in sources], [len(ids) for ids, _, _ in sources]
    arrays = {"ids": [ids + [0] * (max(lengths) - len(ids)) for ids in rows], "lengths": lengths}
    for other in readers:
        arrays |= other.inputs([words for _, words, _ in sources])
    return {x.name: np.array(arrays[x.name], np.int64 if "int" in x.type else np.float32) for x in encoder.get_inputs()}


def best_ids(scores, k):
    """Return the ids of the `k` largest scores of each row in ascending order, and these scores."""
    count, size = scores.shape
    groups = max(1, min(64, size // (2 * k)))  # the k-th largest maximum of groups is a lower bound of the k best
    maxima = scores[:, : size // groups * groups].reshape(count, groups, -1).max(1)
    bound = np.partition(maxima, -min(k, size), 1)[:, -min(k, size)]
    rows, ids = np.divmod(np.flatnonzero(scores >= bound[:, None]), size)
    best = np.lexsort((ids, -scores[rows, ids], rows))  # ties are broken in favor of the smaller id
    chosen = np.sort(best[np.searchsorted(rows, np.arange(count))[:, None] + np.arange(min(k, size))], 1)
    return ids[chosen], scores[rows[chosen], ids[chosen]].astype(np.float64)


def search(sources):
    """Return the best output for each source of a batch, by the beam search of ensue."""
    state = dict(zip(SIZES, encoder.run([*SIZES], inputs(sources)), strict=True))
    limits = [min(config["most"], math.ceil(len(ids) * config["ratio"]) + config["more"]) for ids, _, _ in sources]
    frontier = Frontier(SEARCH, [SEARCH.for_input(max_tokens=limit) for limit in limits], TARGET["special"]["<end>"])
    ids = [TARGET["special"]["<begin>"]] * len(sources)
    memory, count = {name: leaf for name, leaf in state.items() if SIZES[name] == "texts"}, len(sources)
    while len(ids):
        scores, *leaves = decoder.run(OUTPUTS, {"ids": np.asarray(ids, np.int64), **state})
        scores[:, frontier.forbidden.always] = -math.inf
        for blocked in frontier.blocked_tokens():
            scores[blocked] = -math.inf
        rows, ids = frontier.advance(*best_ids(scores, SEARCH.width), None)
        state |= {name.replace("next", "state", 1): leaf for name, leaf in zip(OUTPUTS[1:], leaves, strict=True)}
        state |= {name: leaf[rows] for name, leaf in state.items() if name not in memory}
        if count != (count := len(frontier.live.inputs)):  # memory has a row for each source that is not finished
            state |= {name: leaf[frontier.live.inputs] for name, leaf in memory.items()}
    return [hypotheses[0].ids for hypotheses in frontier.results()]


def decode(ids, copied):
    """Return the text of the ids of an output."""
    ids = [id for id in ids if id not in TARGET["special"].values()]
    if TARGET["words"] is None:
        return writer.decode(ids).removeprefix(TARGET["before"])
    words = [copied[id - SOURCE["size"]] if id >= TARGET["size"] else writer.id_to_token(id) for id in ids]
    return join_words(words, joins_marks=TARGET["words"] == "simple")


def outputs(sources):
    """Return the outputs for sources, in order. A batch has sources of similar length."""
    ids_of_outputs, lengths = {}, np.array([len(ids) for ids, _, _ in sources])
    for batch in batch_by_length(lengths, batch_size=config["rows"], batch_tokens=config["tokens"]):
        ids_of_outputs |= zip(batch.tolist(), search([sources[number] for number in batch]), strict=True)
    return [decode(ids_of_outputs[number], copied) for number, (_, _, copied) in enumerate(sources)]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(f"{sys.argv[1]}: this program takes no arguments; `ensue predict` has --glossary and --keep-markup")
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # independent of the locale
    while lines := list(islice(sys.stdin, 1 if sys.stdin.isatty() else config["window"])):
        for line, text in zip(lines, outputs([read(line.rstrip("\r\n").split("\t")) for line in lines]), strict=True):
            print(re.sub(r"[\r\n\t]", " ", text) if line.strip() else "")  # the output of an empty source is empty
