"""A classifier of frames with onnxruntime and numpy.

python predict.py FILE ...    prints name, labels and probability of each series, as `ensue predict` does
"""

import sys

import numpy as np
from frames import config, inputs, model, series


def predict(some):
    """The probability of each label (series, labels) of a list of arrays (T, d)."""
    (probabilities,) = model.run(["probabilities"], inputs(some))
    return probabilities


def chosen(shares):
    """The labels with these probabilities, the most probable first."""
    if not config["multiple"]:
        return [int(shares.argmax())]
    return [label for label in np.argsort(-shares, kind="stable") if shares[label] >= config["threshold"]]


if __name__ == "__main__":
    for path in sys.argv[1:]:
        for name, frames in series(path):
            (shares,) = predict([frames])
            labels = chosen(shares)
            names = " ".join(config["labels"][label] for label in labels) or "-"
            print(f"{name}\t{names}\t{shares[labels[0]] if labels else shares.max():.4f}")
