"""A model of some labels is to know others too: a tagger of CoNLL-2003, or a classifier of AG News.

    python benchmarks/new_labels.py DATA OUT [--texts] [--epochs 8] [--most N]

DATA has `conll2003/eng.{train,testa,testb}.xz`. The first half of the training sentences has PER and LOC, the second
one ORG and MISC; so has the validation of each run, with all of testa. All runs but the first one are scored on testb
with all four. With `--texts` DATA has `ag_news_test_only/test.csv.xz`, of which 2,000 rows, drawn at random, are scored
and 800 validate. The first half of the others has World and Sports, the second one the other two classes, or all four.
What is in OUT is not repeated.
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
    """The words with their labels, without documents."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split(" ") for line in block.splitlines() if line] for block in blocks)
    return [[(row[0], row[3]) for row in some] for some in rows if some and some[0][0] != "-DOCSTART-"]


def texts(path: Path) -> Rows:
    """The texts with their topics, mixed."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        topics = ("World", "Sports", "Business", "Sci/Tech")
        rows = [
            (" ".join(f"{title} {text}".split()), topics[int(topic) - 1]) for topic, title, text in csv.reader(file)
        ]
    random.Random(0).shuffle(rows)
    return rows


def tagged(some: list[Rows], path: Path, classes: Collection[str]) -> str:
    """The path of a file of these sentences with the labels of some classes."""
    kept = (
        "".join(f"{word} {label if label[2:] in classes else 'O'}\n" for word, label in rows) + "\n" for rows in some
    )
    path.write_text("".join(kept), encoding="utf-8")
    return str(path)


def labeled(some: Rows, path: Path, classes: Collection[str]) -> str:
    """The path of a file of the texts of some classes."""
    kept = (f"{topic}\t{text}\n" for text, topic in some if topic in classes)
    path.write_text("label\ttext\n" + "".join(kept), encoding="utf-8")
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--most", type=int)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    kept = {
        "encoder.from": str(asked.out / "first"), "tuning.keep_labels": True, "train.learning_rate": 0.002
    }  # fmt: skip
    train: list[Any]
    valid: list[Any]
    test: list[Any]
    written: Any
    runs: Runs
    if asked.texts:
        recipe, written, old, new = "classify-lstm", labeled, OLD_TOPICS, NEW_TOPICS
        rows = texts(asked.data / "ag_news_test_only" / "test.csv.xz")[: asked.most]
        test, valid, train = rows[:2000], rows[2000:2800], rows[2800:]
        runs = {
            "first": ("old", 1, {}),
            "kept": ("new", 0.5, kept),
            "kept, all": ("all", 1, kept),
            "together": ("all", 1, {}),
        }
    else:
        recipe, written, old, new = "tag-lstm-crf", tagged, OLD, NEW
        train, valid, test = (
            sentences(asked.data / "conll2003" / f"eng.{part}.xz")[: asked.most] for part in ("train", "testa", "testb")
        )
        rehearsed = ("new", 0.5, kept | {"tuning.rehearse": True})
        runs = {"first": ("old", 1, {}), "kept": ("new", 0.5, kept), "rehearsed": rehearsed, "together": ("all", 1, {})}
    half, every = len(train) // 2, (*old, *new)
    data = {
        name: tuple(
            written(of, asked.out / f"{name}{part}.txt", classes) for part, of in (("", some), (".valid", valid))
        )
        for name, some, classes in (
            ("old", train[:half], old),
            ("new", train[half:], new),
            ("all", train[half:], every),
        )
    }
    for name, (of, share, settings) in runs.items():
        out, (texts_of, validation) = asked.out / name, data[of]
        epochs = max(1, round(asked.epochs * share))
        if not out.exists():
            budget = {"train.epochs": epochs, "train.validations": epochs}
            ensue.train(
                recipe, train=texts_of, valid=validation, out=str(out), settings={**budget, **settings}, threads=1
            )
        scored = written(test, asked.out / "test.txt", old if name == "first" else every)
        found: Any = ensue.load(str(out)).evaluate(scored).as_json()["per_label"]
        print(
            name,
            *(f"{label} {100 * found[label]['f1']:.1f}" for label in every if label in found),
            sep="\t",
            flush=True,
        )


if __name__ == "__main__":
    main()
