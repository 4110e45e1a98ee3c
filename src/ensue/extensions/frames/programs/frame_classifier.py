"""A classifier of frames with onnxruntime and numpy.

python predict.py FILE ...    prints the name, labels and probability of each series, as `ensue predict` does
"""

import sys

from frames import config, inputs, model, series

from ensue.text.labels import Classes

classes = Classes.from_json(config["classes"])


def predict(arrays):
    """Return the probabilities (N, K) of the labels of N arrays (T, d)."""
    (probabilities,) = model.run(["probabilities"], inputs(arrays))
    return probabilities


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
    for path in sys.argv[1:]:
        for name, frames in series(path):
            (label_probabilities,) = predict([frames])
            names = " ".join(classes.chosen(label_probabilities)) or "-"
            print(f"{name}\t{names}\t{label_probabilities.max():.4f}")
