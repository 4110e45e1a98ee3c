"""A classifier with onnxruntime and numpy.

python predict.py < texts    a text on each line, or a pair with a tab between; prints label and probability with
                             each line, as `ensue predict` does; --at-least P gives no label that is less probable
"""

import argparse
import sys

from words import config, inputs, model, say_unknown, split

from ensue.text.labels import Classes
from ensue.text.tokens import shortened

classes = Classes.from_json(config["classes"])


def read(text):
    """The words of a text that the model reads."""
    return shortened(split(text), config["most"], config["keep"])


def predict(texts):
    """The probability of each label (texts, labels); a text is a list of words, or two of them."""
    pairs = zip(*texts, strict=True) if config["pair"] else [texts]
    (probabilities,) = model.run(["probabilities"], inputs(*map(list, pairs)))
    return probabilities


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # whatever the locale
    options = argparse.ArgumentParser(description="Labels texts, one on each line of the standard input.")
    options.add_argument("--at-least", type=float, default=0, metavar="P", help="no label that is less probable")
    least = options.parse_args().at_least
    if not 0 <= least <= 1:
        sys.exit(f"--at-least is {least}; expected a number from 0 to 1")
    for line in sys.stdin:
        body = line.rstrip("\r\n")
        text = [read(part) for part in body.split("\t")[:2]] if config["pair"] else read(body)
        (shares,) = predict([text])
        labels = classes.chosen(shares, at_least=least)
        names = ",".join(labels)
        values = ",".join(f"{shares[classes.ids[label]]:.4f}" for label in labels) or f"{shares.max():.4f}"
        print(f"{body}\t{names}\t{values}" if config["pair"] else f"{names}\t{values}\t{body}")
    say_unknown()
