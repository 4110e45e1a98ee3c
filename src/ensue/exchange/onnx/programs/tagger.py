"""A tagger with onnxruntime and numpy.

python predict.py < text    a sentence on each line; prints words and labels, as `ensue predict` does
"""

import sys

import numpy as np
from words import config, inputs, model, padded, say_unknown, split

from ensue.text.labels import Labels

labels_of = Labels.from_json(config["labels"]).decode


def predict(sentences, document=False):
    """The labels of sentences, each a list of words. Those of one document are read together, if the model does so."""
    sentences = [words for words in sentences if words]
    if not sentences:
        return []
    most = config["together"]
    rows = contexts(sentences, most if document else 0)
    given = inputs([[word for words in row for word in words] for row in rows])
    if most:
        given |= places(rows)
    (tags,) = model.run(["tags"], given)
    return [labels_of(row[: len(words)]) for row, words in zip(tags, sentences, strict=True)]


def contexts(sentences, most):
    """Consecutive sentences while they have at most so many words together."""
    rows = []
    for words in sentences:
        if rows and len(words) + sum(map(len, rows[-1])) <= most:
            rows[-1].append(words)
        else:
            rows.append([words])
    return rows


def places(rows):
    """Where in the padded rows the words of each sentence stand."""
    width = max(sum(map(len, row)) for row in rows)
    found, sizes = [], []
    for number, row in enumerate(rows):
        begin = number * width
        for words in row:
            found.append(range(begin, begin := begin + len(words)))
            sizes.append(len(words))
    return {"places_of_sentences": padded(found), "lengths_of_sentences": np.asarray(sizes)}


if __name__ == "__main__":
    for line in sys.stdin:
        words = split(line.rstrip("\r\n"))
        for labels in predict([words]):
            print("\n".join(f"{word}\t{label}" for word, label in zip(words, labels, strict=True)))
        print()
    say_unknown()
