"""Adding labels to a trained model: a tagger of CoNLL-2003, or a classifier of AG News.

    python benchmarks/new_labels.py DATA OUT [--texts] [--epochs 8] [--limit N]

DATA has `conll2003/eng.{train,testa,testb}.xz`. The first half of the training sentences is labeled with PER and LOC,
the second half with ORG and MISC. The validation data of a run are testa with the labels of its training data. The
first run is scored on testb with PER and LOC, the other runs with all four classes. With `--texts` DATA has
`ag_news_test_only/test.csv.xz`: 2,000 random rows are for testing, 800 for validation. The first half of the other rows
has the texts of World and Sports, the second half those of the other two classes, or of all four. Finished runs in OUT
are not repeated. `--limit N` reads only the first N sentences or texts.

- first: trained on the first half, with the old labels
- kept: fine-tunes `first` on the second half with the new labels, with `tuning.keep_labels`; `kept, all` with all
  labels
- rehearsed: as kept, with `tuning.rehearse`
- together: trained on the second half with all labels
"""

from __future__ import annotations

import argparse
import csv
import lzma
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

from machine import describe_machine

import ensue

OLD, NEW = ("PER", "LOC"), ("ORG", "MISC")
OLD_TOPICS, NEW_TOPICS = ("World", "Sports"), ("Business", "Sci/Tech")
Rows = list[tuple[str, str]]
Runs = dict[str, tuple[str, float, dict[str, Any]]]


def sentences(path: Path) -> list[Rows]:
    """Return the sentences as words with labels, without boundaries of documents."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split(" ") for line in block.splitlines() if line] for block in blocks)
    return [[(row[0], row[3]) for row in sentence] for sentence in rows if sentence and sentence[0][0] != "-DOCSTART-"]


def texts(path: Path) -> Rows:
    """Return the texts with their topics, in random order."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        topics = ("World", "Sports", "Business", "Sci/Tech")
        rows = [
            (" ".join(f"{title} {text}".split()), topics[int(topic) - 1]) for topic, title, text in csv.reader(file)
        ]
    random.Random(0).shuffle(rows)
    return rows


def write_sentences(sentences: list[Rows], path: Path, classes: Collection[str]) -> str:
    """Write sentences with the labels of some classes. Return the path."""
    blocks = (
        "".join(f"{word} {label if label[2:] in classes else 'O'}\n" for word, label in rows) + "\n"
        for rows in sentences
    )
    path.write_text("".join(blocks), encoding="utf-8")
    return str(path)


def write_texts(rows: Rows, path: Path, classes: Collection[str]) -> str:
    """Write the texts of some classes. Return the path."""
    lines = (f"{topic}\t{text}\n" for text, topic in rows if topic in classes)
    path.write_text("label\ttext\n" + "".join(lines), encoding="utf-8")
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    keep_labels = {
        "encoder.from": str(arguments.out / "first"), "tuning.keep_labels": True, "train.learning_rate": 0.002
    }  # fmt: skip
    train: list[Any]
    valid: list[Any]
    test: list[Any]
    write: Any
    runs: Runs
    if arguments.texts:
        recipe, write, old, new = "classify-lstm", write_texts, OLD_TOPICS, NEW_TOPICS
        rows = texts(arguments.data / "ag_news_test_only" / "test.csv.xz")[: arguments.limit]
        test, valid, train = rows[:2000], rows[2000:2800], rows[2800:]
        runs = {
            "first": ("old", 1, {}),
            "kept": ("new", 0.5, keep_labels),
            "kept, all": ("all", 1, keep_labels),
            "together": ("all", 1, {}),
        }
    else:
        recipe, write, old, new = "tag-lstm-crf", write_sentences, OLD, NEW
        train, valid, test = (
            sentences(arguments.data / "conll2003" / f"eng.{part}.xz")[: arguments.limit]
            for part in ("train", "testa", "testb")
        )
        rehearsed = ("new", 0.5, keep_labels | {"tuning.rehearse": True})
        runs = {
            "first": ("old", 1, {}),
            "kept": ("new", 0.5, keep_labels),
            "rehearsed": rehearsed,
            "together": ("all", 1, {}),
        }
    half, all_classes = len(train) // 2, (*old, *new)
    data = {
        name: tuple(
            write(rows, arguments.out / f"{name}{part}.txt", classes)
            for part, rows in (("", examples), (".valid", valid))
        )
        for name, examples, classes in (
            ("old", train[:half], old),
            ("new", train[half:], new),
            ("all", train[half:], all_classes),
        )
    }
    for name, (part, share, settings) in runs.items():
        out, (train_file, valid_file) = arguments.out / name, data[part]
        epochs = max(1, round(arguments.epochs * share))
        if not out.exists():
            budget = {"train.epochs": epochs, "train.validations": epochs}
            ensue.train(
                recipe, train=train_file, valid=valid_file, out=str(out), settings={**budget, **settings}, threads=1
            )
        scored = write(test, arguments.out / "test.txt", old if name == "first" else all_classes)
        scores: Any = ensue.load(str(out)).evaluate(scored).as_json()["per_label"]
        print(
            name,
            *(f"{label} {100 * scores[label]['f1']:.1f}" for label in all_classes if label in scores),
            sep="\t",
            flush=True,
        )


if __name__ == "__main__":
    main()
