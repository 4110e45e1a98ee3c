"""A classifier with onnxruntime and numpy.

python predict.py < texts                   print the label and its probability for the text in each line; for models of
                                            pairs, a line has two texts separated by a tab
python predict.py --at-least P < texts      print only labels with a probability of at least P; without such a label,
                                            print an empty label and the highest probability
"""

import argparse
import sys

from words import config, inputs, model, split, warn_unknown

from ensue.text.labels import Classes
from ensue.text.tokens import truncate

classes = Classes.from_json(config["classes"])


def read(text):
    """Return the words of a text, truncated to the maximum number that the model reads."""
    return truncate(split(text), config["most"], config["keep"])


def predict(texts):
    """Return the probabilities (texts, labels). A text is a list of words, or a pair of lists for a model of pairs."""
    columns = zip(*texts, strict=True) if config["pair"] else [texts]
    (probabilities,) = model.run(["probabilities"], inputs(*map(list, columns)))
    return probabilities


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # independent of the locale
    options = argparse.ArgumentParser(description="Labels texts, one on each line of the standard input.")
    options.add_argument("--at-least", type=float, default=0, metavar="P", help="the minimum probability of a label")
    minimum = options.parse_args().at_least
    if not 0 <= minimum <= 1:
        sys.exit(f"--at-least is {minimum}; expected a number from 0 to 1")
    for raw_line in sys.stdin:
        line = raw_line.rstrip("\r\n")
        text = [read(column) for column in line.split("\t")[:2]] if config["pair"] else read(line)
        (probabilities,) = predict([text])
        labels = classes.choose(probabilities, at_least=minimum)
        names = ",".join(labels)
        values = [probabilities[classes.ids[label]] for label in labels] or [probabilities.max()]
        values = ",".join(f"{value:.4f}" for value in values)
        print(f"{line}\t{names}\t{values}" if config["pair"] else f"{names}\t{values}\t{line}")
    warn_unknown()
