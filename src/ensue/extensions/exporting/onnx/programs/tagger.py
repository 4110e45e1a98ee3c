"""A tagger with onnxruntime and numpy.

python predict.py < text               print the words and labels of the sentence in each line, like `ensue predict`
python predict.py --json < text        print a JSON object for each sentence, with probabilities
python predict.py --n-best K < text    print the K best paths with their probabilities
"""

import argparse
import json
import sys

import numpy as np
from words import config, inputs, model, pad_rows, warn_unknown

from ensue.nn.heads.single_chain import ChainScores, Posterior
from ensue.tasks.labeling.tagged_sentence import MAX_PATHS, Confidence, LabeledWord, TaggedSentence, format_paths
from ensue.text.label_columns import LabelColumns, NestedLabels
from ensue.text.labels import Labels
from ensue.text.tokens import tokens

kinds = {kind.kind: kind for kind in (Labels, LabelColumns, NestedLabels)}
label_coder = kinds[config["labels"]["kind"]].from_json(config["labels"])


def chain_scores(tables):
    """Return the scores of transitions, -inf for null. None for a model that predicts each tag independently."""
    return ChainScores(*(np.nan_to_num(np.array(t, np.float32), nan=-np.inf) for t in tables)) if tables else None


heads = [(len(head["tags"]), chain_scores(head["tables"])) for head in config.get("heads", [])]
tables = chain_scores(config["tables"])


def predict(sentences, document=False):
    """Return the labels of non-empty sentences (lists of words). Some models read a document's sentences together."""
    return [labels for labels, _ in score(sentences, document)]


def score(sentences, document=False):
    """Return the labels of sentences, and the scores of all tags, which `posterior` converts to probabilities."""
    sentences = [words for words in sentences if words]
    if not sentences:
        return []
    max_words = config["together"]
    rows = group_sentences(sentences, max_words if document else 0)
    arrays = inputs([[word for words in row for word in words] for row in rows])
    arrays |= sentence_positions(rows) if max_words else {}
    outputs = zip(*model.run(["tags", "emissions"], arrays), sentences, strict=True)
    return [(label_coder.decode(tags[: len(words)], words), scores[: len(words)]) for tags, scores, words in outputs]


def posterior(emissions):
    """Return the probabilities of tags, spans and paths of a sentence."""
    if not heads:
        return Posterior.of(emissions, tables)
    columns = np.split(emissions, np.cumsum([size for size, _ in heads])[:-1], axis=1)
    return Posterior.concatenate(
        [Posterior.of(scores, chain) for scores, (_, chain) in zip(columns, heads, strict=True)]
    )


def tag(text, n_best=0):
    """Return a text with its words, labels and spans, and their probabilities."""
    words = tokens(text, config["splitter"])
    forms = [word.text for word in words]
    empty = [], np.zeros((0, len(config["tags"])), np.float32)
    ((labels, emissions),) = score([forms]) or [empty]
    confidence = Confidence.of(label_coder, labels, posterior(emissions), forms, n_best)
    columns = dict.fromkeys(label_coder.names if isinstance(label_coder, LabelColumns) else (), "") or None
    labeled = [
        LabeledWord(word.text, "", word.start, word.end, columns=columns).with_label(label)
        for word, label in zip(words, labels, strict=True)
    ]
    overlap = isinstance(label_coder, NestedLabels)
    return TaggedSentence(text, tuple(labeled), label_coder.has_spans, overlap=overlap).with_confidence(confidence)


def group_sentences(sentences, max_words):
    """Group consecutive sentences into passages of at most `max_words` words. A longer sentence is a passage."""
    rows = []
    for words in sentences:
        if rows and len(words) + sum(map(len, rows[-1])) <= max_words:
            rows[-1].append(words)
        else:
            rows.append([words])
    return rows


def sentence_positions(rows):
    """Return the positions of the words of each sentence in the padded rows, and the lengths of the sentences."""
    width = max(sum(map(len, row)) for row in rows)
    positions = []
    for number, row in enumerate(rows):
        begin = number * width
        for words in row:
            positions.append(range(begin, begin := begin + len(words)))
    return {"places_of_sentences": pad_rows(positions), "lengths_of_sentences": np.asarray(list(map(len, positions)))}


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # independent of the locale
    options = argparse.ArgumentParser(description="Labels sentences, one on each line of the standard input.")
    options.add_argument("--json", action="store_true", help="a JSON line for each sentence, with probabilities")
    options.add_argument("--n-best", type=int, default=0, metavar="K", help="the best paths with their probabilities")
    args = options.parse_args()
    if not 0 <= args.n_best <= MAX_PATHS:
        sys.exit(f"--n-best is {args.n_best}; expected 0 to {MAX_PATHS} paths")
    for line in sys.stdin:
        text = line.rstrip("\r\n")
        if not args.json and not args.n_best:
            words = [word.text for word in tokens(text, config["splitter"])]
            for labels in predict([words]):
                rows = zip(words, ([label] if isinstance(label, str) else label for label in labels), strict=True)
                print("\n".join("\t".join((word, *row)) for word, row in rows))
            print()
            continue
        result = tag(text, args.n_best)
        print(json.dumps(result.as_json(), ensure_ascii=False) + "\n" if args.json else format_paths(result), end="")
    warn_unknown()
