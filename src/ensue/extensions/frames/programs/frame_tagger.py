"""A tagger of frames with onnxruntime and numpy.

python predict.py FILE ...    prints the name of each series and the labels of its frames, as `ensue predict` does
"""

from frames import arguments, config, inputs, model

from ensue.text.labels import Labels

decode_labels = Labels.from_json(config["labels"]).decode


def predict(arrays):
    """Return the labels of the frames of each array (T, d)."""
    (tags,) = model.run(["tags"], inputs(arrays))
    return [decode_labels(row[: len(frames)]) for row, frames in zip(tags, arrays, strict=True)]


if __name__ == "__main__":
    for name, frames in arguments():
        print(f"{name}\t{' '.join(predict([frames])[0])}")
