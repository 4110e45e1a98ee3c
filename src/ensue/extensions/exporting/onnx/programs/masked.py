"""A masked language model with onnxruntime, numpy and tokenizers.

python predict.py < texts            a text on each line, with [MASK] in it; prints it filled, as `ensue predict` does
python predict.py --embed < texts    the vector of each line as JSON, as `ensue embed --json` prints it; the only one
                                     for a model that fills in nothing
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from subwords import loaded

from ensue.tasks.texts.framing import text_windows

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
tokenizer = loaded("tokenizer.json")
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
MASK, most = "[MASK]", config["context"] - 2
POOLINGS = {"mean": lambda h: h.mean(0), "first": lambda h: h[0], "last": lambda h: h[-1], "max": lambda h: h.max(0)}


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def first(text):
    """The ids of the beginning of a text."""
    return encode(config["before"] + text) if text else []


def read(ids, output):
    """An output of the model for each of `ids` and what stands around them (tokens + 2, ...)."""
    framed = np.array([[config["begin"], *ids, config["end"]]], np.int64)
    return model.run([output], {"ids": framed, "lengths": np.array([framed.shape[1]])})[0][0]


def fill(text):
    """The text with the most probable token in place of each mask."""
    parts = text.split(MASK)
    lefts = [part.removesuffix(" ") if config["joins_blanks"] else part for part in parts[:-1]] + parts[-1:]
    ids = first(lefts[0])
    for part in lefts[1:]:
        ids += [config["mask"], *encode(part)]
    if len(parts) < 2 or len(ids) > most:
        sys.exit(
            f"a text of {len(ids):,} tokens with {len(parts) - 1} {MASK}; expected some, and up to {most:,} tokens"
        )
    logits = read(ids, "logits")[1:-1][np.array(ids) == config["mask"]]
    logits[:, config["forbidden"]] = -np.inf
    found = parts[0]
    for id, part in zip(logits.argmax(1), parts[1:], strict=True):
        symbol = config["symbols"][id]
        if config["joins_blanks"] or not config["begins_word"][id]:
            found = found.removesuffix(" ")
        symbol = symbol if found else symbol.removeprefix(" ")
        found += symbol.removeprefix(config["inside"]) + part
    return found


def embed(text):
    """The vector of a text. A long one is read in windows; each token counts where it is farthest from their edges."""
    ids, found = first(text), []
    for _, begin, end, start, stop in text_windows(0, len(ids), most):
        h = read(ids[begin:end], "vectors")
        found.append(h[(start and start - begin + 1) : stop - begin + 1 + (stop == len(ids))])
    vector = POOLINGS[config["pooling"]](np.concatenate(found))
    return vector / (np.linalg.norm(vector) or 1) if config["unit_length"] else vector


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # whatever the locale
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if config["fills"] and sys.argv[1:] != ["--embed"]:
            print(fill(text))
        else:
            numbers = [float(f"{number:.9g}") for number in embed(text)]
            print(json.dumps({"text": text, "vector": numbers}, ensure_ascii=False))
