"""A bidirectional language model with onnxruntime, numpy and tokenizers.

python predict.py < text            prints the nats of each word, the mean of both directions, as `ensue score` does
python predict.py --embed < texts   prints the vector of each line as JSON, as `ensue embed --json` does; this is the
                                    default for a model without probabilities of words
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from both_ways import WordReader

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
reader = WordReader(config)


def run(words, *outputs):
    """Return outputs of the model for the words of a text."""
    inputs = reader.read([words])
    return [output[0] for output in model.run(outputs, {x.name: inputs[x.name] for x in model.get_inputs()})]


def scores(words):
    """Return the surprisal of each word, the mean of both directions."""
    ids, nats = list(map(reader.id, words)), []
    for logits in run(words, "rightward_logits", "leftward_logits"):
        shifted = (logits - logits.max(1, keepdims=True)).astype(np.float64)
        nats.append(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(ids)), ids])
    return np.mean(nats, axis=0)


def embed(words):
    """Return the mean of the vectors of words in the last layer; zeros without words."""
    (layers,) = run(words, "layers")
    return layers[-1].sum(0) / max(1, len(words))


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # independent of the locale
    for line in sys.stdin:
        words = reader.words(text := line.rstrip("\r\n"))
        if sys.argv[1:] == ["--embed"] or not config["scores"]:
            numbers = [float(f"{number:.9g}") for number in embed(words)]
            print(json.dumps({"text": text, "vector": numbers}, ensure_ascii=False))
        else:
            for word, nats in zip(words, scores(words) if words else [], strict=True):
                print(f"{max(nats, 0.0):9.4f}\t{json.dumps(word, ensure_ascii=False)[1:-1]}")
