"""A tagger with onnxruntime and numpy.

python predict.py < text    a sentence on each line; prints words and labels, as `ensue predict` does; with --json, and
                            with --n-best K, what that prints
"""

import argparse
import json
import sys

import numpy as np
from words import config, inputs, model, padded, say_unknown

from ensue.nn.heads.single_chain import ChainScores, Posterior
from ensue.tasks.labeling.tagged_sentence import MOST_PATHS, Confidence, LabeledWord, TaggedSentence, listed_paths
from ensue.text.label_columns import LabelColumns, NestedLabels
from ensue.text.labels import Labels
from ensue.text.tokens import tokens

kinds = {kind.kind: kind for kind in (Labels, LabelColumns, NestedLabels)}
labels_of = kinds[config["labels"]["kind"]].from_json(config["labels"])


def scores(tables):
    """The scores of a chain, in which null is what never happens; None if each tag is chosen by itself."""
    if not tables:
        return None
    return ChainScores(*(np.nan_to_num(np.array(part, np.float32), nan=-np.inf) for part in tables))


heads = [(len(head["tags"]), scores(head["tables"])) for head in config.get("heads", [])]
tables = scores(config["tables"])


def predict(sentences, document=False):
    """The labels of sentences, each a list of words. Those of one document are read together, if the model does so."""
    return [labels for labels, _ in judged(sentences, document)]


def judged(sentences, document=False):
    """The labels of sentences, and the scores of all tags, of which `posterior` makes probabilities."""
    sentences = [words for words in sentences if words]
    if not sentences:
        return []
    most = config["together"]
    rows = passages(sentences, most if document else 0)
    given = inputs([[word for words in row for word in words] for row in rows]) | (places(rows) if most else {})
    found = zip(*model.run(["tags", "emissions"], given), sentences, strict=True)
    return [(labels_of.decode(tags[: len(words)], words), emissions[: len(words)]) for tags, emissions, words in found]


def posterior(emissions):
    """The probabilities of tags, spans and paths of a sentence."""
    if not heads:
        return Posterior.of(emissions, tables)
    parts = np.split(emissions, np.cumsum([size for size, _ in heads])[:-1], axis=1)
    return Posterior.beside([Posterior.of(part, own) for part, (_, own) in zip(parts, heads, strict=True)])


def tagged(text, n_best=0):
    """A text with its words, labels and spans, and how probable they are."""
    words = tokens(text, config["splitter"])
    nothing = [], np.zeros((0, len(config["tags"])), np.float32)
    ((labels, emissions),) = judged([[word.text for word in words]]) or [nothing]
    forms = [word.text for word in words]
    confidence = Confidence.of(labels_of, labels, posterior(emissions), forms, n_best)
    names = labels_of.names if isinstance(labels_of, LabelColumns) else ()
    empty = dict.fromkeys(names, "") or None
    labeled = [
        LabeledWord(word.text, "", word.start, word.end, columns=empty).with_label(label)
        for word, label in zip(words, labels, strict=True)
    ]
    overlap = isinstance(labels_of, NestedLabels)
    return TaggedSentence(text, tuple(labeled), labels_of.has_spans, overlap=overlap).judged(confidence)


def passages(sentences, most):
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
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # whatever the locale
    options = argparse.ArgumentParser(description="Labels sentences, one on each line of the standard input.")
    options.add_argument("--json", action="store_true", help="a JSON line for each sentence, with probabilities")
    options.add_argument("--n-best", type=int, default=0, metavar="K", help="the best paths with their probabilities")
    asked = options.parse_args()
    if not 0 <= asked.n_best <= MOST_PATHS:
        sys.exit(f"--n-best is {asked.n_best}; expected at most {MOST_PATHS} paths")
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if not asked.json and not asked.n_best:
            words = [word.text for word in tokens(text, config["splitter"])]
            for labels in predict([words]):
                rows = zip(words, ([label] if isinstance(label, str) else label for label in labels), strict=True)
                print("\n".join("\t".join((word, *row)) for word, row in rows))
            print()
            continue
        found = tagged(text, asked.n_best)
        print(json.dumps(found.as_json(), ensure_ascii=False) + "\n" if asked.json else listed_paths(found), end="")
    say_unknown()
