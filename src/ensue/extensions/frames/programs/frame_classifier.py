"""A classifier of frames with onnxruntime and numpy.

python predict.py FILE ...    prints name, labels and probability of each series, as `ensue predict` does
"""

import sys

from frames import config, inputs, model, series

from ensue.text.labels import Classes

classes = Classes.from_json(config["classes"])


def predict(some):
    """The probability of each label (series, labels) of a list of arrays (T, d)."""
    (probabilities,) = model.run(["probabilities"], inputs(some))
    return probabilities


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
    for path in sys.argv[1:]:
        for name, frames in series(path):
            (shares,) = predict([frames])
            names = " ".join(classes.chosen(shares)) or "-"
            print(f"{name}\t{names}\t{shares.max():.4f}")
