"""The recall of `ensue doubt` on labels with random errors: 5 % of the labels are changed at random.

    python benchmarks/doubts.py conll2003/eng.train.xz imdb/train.jsonl.xz --seeds 3
    python benchmarks/doubts.py ag_news_test_only/test.csv.xz --columns 2,3 --texts 3000

A changed label is replaced by another label of the data, with equal probabilities. The script examines the most
doubtful 5 % of all labels, and prints the share of all changed labels that are among the examined labels. For
sentences, each word of a doubtful span counts. `--texts N` uses a random sample of N texts of a file of texts.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from machine import describe_machine

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.source import SentenceSource
from ensue.extensions.annotating.doubts import doubt

ERROR_RATE = 0.05


def change_labels_of_sentences(path: Path, out: Path, generator: random.Random) -> set[tuple[int, int]]:
    """Write a copy of a file with changed labels. Return the line of the sentence and the word index of each."""
    source = SentenceSource(path)
    names = sorted({label for sentence in source for label in source.format.labels(sentence)})
    changes, parts = set(), []
    for sentence in source:
        labels = list(source.format.labels(sentence))
        for place, label in enumerate(labels):
            if generator.random() < ERROR_RATE:
                labels[place] = generator.choice([name for name in names if name != label])
                changes.add((sentence.line, place))
        parts.append(source.format.write(sentence, labels))
    out.write_text("".join([*parts, source.rest]))
    return changes


def change_labels_of_texts(
    path: Path, out: Path, generator: random.Random, arguments: argparse.Namespace
) -> set[tuple[int, int]]:
    """Write texts as JSON lines with changed labels. Return the line of each changed label, with the index 0."""
    columns = tuple(filter(None, arguments.columns.split(",")))
    choice = DocumentChoice(texts=columns, joined=len(columns) > 1)
    source = DocumentSource(str(path), choice, encoding=arguments.encoding)
    documents = list(source)
    names = sorted({label for document in documents for label in document.labels})
    if arguments.texts:
        documents = generator.sample(documents, arguments.texts)
    changes, rows = set(), []
    for line, document in enumerate(documents, 1):
        labels = document.labels
        if generator.random() < ERROR_RATE:
            labels = (generator.choice([name for name in names if name not in labels]),)
            changes.add((line, 0))
        rows.append(json.dumps({"text": " ".join(document.texts), "label": labels[0]}) + "\n")
    out.write_text("".join(rows))
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--recipe", default="")
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--columns", default="", help="the columns of the text, which are joined, such as 2,3")
    parser.add_argument("--encoding", default="utf-8")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(describe_machine(seed=0))
    for file in arguments.files:
        for seed in range(arguments.seeds):
            are_sentences = detect(file, encoding=arguments.encoding).kind == "sentences"
            with tempfile.TemporaryDirectory() as name:
                out = Path(name) / ("a.conll" if are_sentences else "a.jsonl")
                generator = random.Random(seed)
                changes = (
                    change_labels_of_sentences(file, out, generator)
                    if are_sentences
                    else change_labels_of_texts(file, out, generator, arguments)
                )
                start = time.process_time()
                doubts = doubt(out, recipe=arguments.recipe, seed=seed, threads=arguments.threads)
            in_20 = sum((label.line, 0) in changes for label in doubts.ranked[:20])
            max_examined, examined, hits = round(ERROR_RATE * doubts.num_labels), 0, 0
            for label in doubts.ranked:
                first = len(label.text[: label.start].split()) if are_sentences else 0
                places = {(label.line, first + place) for place in range(len(label.given))}
                if examined + len(places) > max_examined:
                    break
                examined, hits = examined + len(places), hits + len(places & changes)
            print(
                f"{file.name}, seed {seed}: {len(changes):,} of {doubts.num_labels:,} labels of {doubts.unit} changed; "
                f"{100 * hits / len(changes):.1f} % of them among the first {max_examined:,} (examined: {examined:,}); "
                + ("" if are_sentences else f"{in_20} of the first 20; ")
                + f"{time.process_time() - start:.0f} s of processor time",
                flush=True,
            )


if __name__ == "__main__":
    main()
