"""A masked language model with onnxruntime, numpy and tokenizers.

python predict.py < texts            print each line with the most probable token for each [MASK], like `ensue predict`;
                                     a model without a masked head prints vectors
python predict.py --embed < texts    print the vector of each line as JSON, like `ensue embed --json`
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from subwords import load_tokenizer

from ensue.tasks.texts.framing import text_windows

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
tokenizer = load_tokenizer("tokenizer.json")
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
MASK, MAX_TOKENS = "[MASK]", config["context"] - 2
POOLINGS = {"mean": lambda h: h.mean(0), "first": lambda h: h[0], "last": lambda h: h[-1], "max": lambda h: h.max(0)}


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def encode_start(text):
    """Return the ids of the beginning of a text. Some tokenizers add a blank before it."""
    return encode(config["before"] + text) if text else []


def read(ids, output):
    """Return an output of the model (tokens + 2, ...) for ids between the begin and end tokens."""
    framed = np.array([[config["begin"], *ids, config["end"]]], np.int64)
    return model.run([output], {"ids": framed, "lengths": np.array([framed.shape[1]])})[0][0]


def fill(text):
    """Return the text with the most probable token in place of each mask."""
    segments = text.split(MASK)
    inputs = [segment.removesuffix(" ") if config["joins_blanks"] else segment for segment in segments[:-1]]
    inputs += segments[-1:]
    ids = encode_start(inputs[0])
    for segment in inputs[1:]:
        ids += [config["mask"], *encode(segment)]
    if len(segments) < 2 or len(ids) > MAX_TOKENS:
        size = f"{len(ids):,} tokens with {len(segments) - 1} {MASK}"
        sys.exit(f"a text of {size}; expected at least one {MASK} and up to {MAX_TOKENS:,} tokens")
    logits = read(ids, "logits")[1:-1][np.array(ids) == config["mask"]]
    logits[:, config["forbidden"]] = -np.inf
    result = segments[0]
    for id, segment in zip(logits.argmax(1), segments[1:], strict=True):
        symbol = config["symbols"][id]
        if config["joins_blanks"] or not config["begins_word"][id]:
            result = result.removesuffix(" ")
        symbol = symbol if result else symbol.removeprefix(" ")
        result += symbol.removeprefix(config["inside"]) + segment
    return result


def embed(text):
    """Return the vector of a text. A long text is read in overlapping windows, and the vector of a token is taken from
    the window in which it is farthest from the edges.
    """
    ids, vectors = encode_start(text), []
    for _, begin, end, start, stop in text_windows(0, len(ids), MAX_TOKENS):
        h = read(ids[begin:end], "vectors")
        vectors.append(h[(start and start - begin + 1) : stop - begin + 1 + (stop == len(ids))])
    vector = POOLINGS[config["pooling"]](np.concatenate(vectors))
    return vector / (np.linalg.norm(vector) or 1) if config["unit_length"] else vector


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # independent of the locale
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if config["fills"] and sys.argv[1:] != ["--embed"]:
            print(fill(text))
        else:
            numbers = [float(f"{number:.9g}") for number in embed(text)]
            print(json.dumps({"text": text, "vector": numbers}, ensure_ascii=False))
