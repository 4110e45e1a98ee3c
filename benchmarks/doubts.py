"""How many of 5 % labels that are flipped at random are among the first 5 % that `ensue doubt` doubts.

    python benchmarks/doubts.py conll2003/eng.train.xz imdb/train.jsonl.xz --seeds 3
    python benchmarks/doubts.py ag_news_test_only/test.csv.xz --columns 2,3 --texts 3000

Each label that is drawn becomes another one of the data, drawn evenly. Of a run of words as many count as it has.
With --texts, that many texts are drawn from a file of texts.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch

from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.sentences.source import SentenceSource
from ensue.extensions.annotating.doubts import doubt

SHARE = 0.05


def flipped_sentences(path: Path, out: Path, draw: random.Random) -> set[tuple[int, int]]:
    """Writes the file with flipped labels; returns the places of the flips: line of the sentence, word."""
    source = SentenceSource(path)
    names = sorted({label for sentence in source for label in source.format.labels(sentence)})
    flips, parts = set(), []
    for sentence in source:
        labels = list(source.format.labels(sentence))
        for place, label in enumerate(labels):
            if draw.random() < SHARE:
                labels[place] = draw.choice([name for name in names if name != label])
                flips.add((sentence.line, place))
        parts.append(source.format.write(sentence, labels))
    out.write_text("".join([*parts, source.rest]))
    return flips


def flipped_texts(path: Path, out: Path, draw: random.Random, options: argparse.Namespace) -> set[tuple[int, int]]:
    """Writes drawn texts as JSON lines with flipped labels; returns the lines of the flips."""
    columns = tuple(filter(None, options.columns.split(",")))
    choice = DocumentChoice(texts=columns, joined=len(columns) > 1)
    source = DocumentSource(str(path), choice, encoding=options.encoding)
    documents = list(source)
    names = sorted({label for document in documents for label in document.labels})
    if options.texts:
        documents = draw.sample(documents, options.texts)
    flips, rows = set(), []
    for line, document in enumerate(documents, 1):
        labels = document.labels
        if draw.random() < SHARE:
            labels = (draw.choice([name for name in names if name not in labels]),)
            flips.add((line, 0))
        rows.append(json.dumps({"text": " ".join(document.texts), "label": labels[0]}) + "\n")
    out.write_text("".join(rows))
    return flips


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--recipe", default="")
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--columns", default="", help="the columns of texts that are joined, such as 2,3")
    parser.add_argument("--encoding", default="utf-8")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for file in options.files:
        for seed in range(options.seeds):
            are_sentences = detect(file, encoding=options.encoding).kind == "sentences"
            with tempfile.TemporaryDirectory() as name:
                out = Path(name) / ("a.conll" if are_sentences else "a.jsonl")
                draw = random.Random(seed)
                flips = flipped_sentences(file, out, draw) if are_sentences else flipped_texts(file, out, draw, options)
                began = time.process_time()
                doubts = doubt(out, recipe=options.recipe, seed=seed, threads=options.threads)
            in_20 = sum((each.line, 0) in flips for each in doubts.ranked[:20])
            most, seen, hits = round(SHARE * doubts.num_labels), 0, 0
            for each in doubts.ranked:
                first = len(each.text[: each.start].split()) if are_sentences else 0
                places = {(each.line, first + place) for place in range(len(each.given))}
                if seen + len(places) > most:
                    break
                seen, hits = seen + len(places), hits + len(places & flips)
            print(
                f"{file.name}, seed {seed}: {len(flips):,} of {doubts.num_labels:,} {doubts.unit} flipped; of them "
                f"{100 * hits / len(flips):.1f} % are among the first {most:,} (doubted: {seen:,}); "
                + ("" if are_sentences else f"{in_20} of the first 20; ")
                + f"{time.process_time() - began:.0f} s of processor time",
                flush=True,
            )


if __name__ == "__main__":
    main()
