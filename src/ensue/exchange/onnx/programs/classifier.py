"""A classifier with onnxruntime and numpy.

python predict.py < texts    a text on each line, or a pair with a tab between; prints label and probability with
                             each line, as `ensue predict` does
"""

import sys

import numpy as np
from words import config, inputs, model, say_unknown, split


def read(text):
    """The words of a text that the model reads."""
    words, most = split(text), config["most"]
    if not most or len(words) <= most:
        return words
    ends = {"start": (most, 0), "end": (0, most), "both": (most // 2, most - most // 2)}
    first, last = ends[config["keep"]]
    return words[:first] + words[len(words) - last :]


def predict(texts):
    """The probability of each label (texts, labels); a text is a list of words, or two of them."""
    pairs = zip(*texts, strict=True) if config["pair"] else [texts]
    (probabilities,) = model.run(["probabilities"], inputs(*map(list, pairs)))
    return probabilities


def chosen(shares):
    """The labels with these probabilities, the most probable first."""
    if not config["multiple"]:
        return [int(shares.argmax())]
    return [label for label in np.argsort(-shares, kind="stable") if shares[label] >= config["threshold"]]


if __name__ == "__main__":
    for line in sys.stdin:
        body = line.rstrip("\r\n")
        text = [read(part) for part in body.split("\t")[:2]] if config["pair"] else read(body)
        (shares,) = predict([text])
        labels = chosen(shares)
        names = ",".join(config["labels"][label] for label in labels)
        values = ",".join(f"{share:.4f}" for share in (shares[labels] if labels else [shares.max()]))
        print(f"{body}\t{names}\t{values}" if config["pair"] else f"{names}\t{values}\t{body}")
    say_unknown()
