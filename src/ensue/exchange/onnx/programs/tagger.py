"""A tagger with onnxruntime and numpy.

python predict.py < text    a sentence on each line; prints words and labels, as `ensue predict` does
"""

import sys

from labels import labels_of
from words import config, inputs, model, split


def predict(sentences):
    """The labels of sentences, each a list of words."""
    sentences = [words for words in sentences if words]
    if not sentences:
        return []
    (tags,) = model.run(["tags"], inputs(sentences))
    rows = [row[: len(words)] for row, words in zip(tags, sentences, strict=True)]
    return [labels_of([config["tags"][tag] for tag in row], config) for row in rows]


if __name__ == "__main__":
    for line in sys.stdin:
        words = split(line.rstrip("\r\n"))
        for labels in predict([words]):
            print("\n".join(f"{word}\t{label}" for word, label in zip(words, labels, strict=True)))
        print()
