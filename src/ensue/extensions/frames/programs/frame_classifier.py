"""A classifier of frames with onnxruntime and numpy.

python predict.py FILE ...    prints the name, labels and probability of each series, as `ensue predict` does
"""

from frames import arguments, config, inputs, model

from ensue.text.labels import Classes

classes = Classes.from_json(config["classes"])


def predict(arrays):
    """Return the probabilities (N, K) of the labels of N arrays (T, d)."""
    (probabilities,) = model.run(["probabilities"], inputs(arrays))
    return probabilities


if __name__ == "__main__":
    for name, frames in arguments():
        (label_probabilities,) = predict([frames])
        names = " ".join(classes.choose(label_probabilities)) or "-"
        print(f"{name}\t{names}\t{label_probabilities.max():.4f}")
