"""CoNLL-2003: a tagger of PER and LOC is to know ORG and MISC too, from sentences that have labels for these alone.

    python benchmarks/new_labels.py DATA OUT [--epochs 8] [--sentences N]

DATA has `conll2003/eng.{train,testa,testb}.xz`. The first half of the training sentences has PER and LOC, the second
one ORG and MISC; so has the validation of each run, with all of testa. All runs are scored on testb with all four. What
is in OUT is not repeated.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Collection
from pathlib import Path
from typing import Any

from machine import describe_machine

import ensue

OLD, NEW = ("PER", "LOC"), ("ORG", "MISC")
Rows = list[tuple[str, str]]


def sentences(path: Path) -> list[Rows]:
    """The words with their labels, without documents."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split(" ") for line in block.splitlines() if line] for block in blocks)
    return [[(row[0], row[3]) for row in some] for some in rows if some and some[0][0] != "-DOCSTART-"]


def written(some: list[Rows], path: Path, classes: Collection[str]) -> str:
    """The path of a file of these sentences with the labels of some classes."""
    kept = (
        "".join(f"{word} {label if label[2:] in classes else 'O'}\n" for word, label in rows) + "\n" for rows in some
    )
    path.write_text("".join(kept), encoding="utf-8")
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--sentences", type=int)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    train, valid, test = (
        sentences(asked.data / "conll2003" / f"eng.{part}.xz")[: asked.sentences]
        for part in ("train", "testa", "testb")
    )
    half, every = len(train) // 2, (*OLD, *NEW)
    data = {
        name: (
            written(some, asked.out / f"{name}.txt", classes),
            written(valid, asked.out / f"{name}.valid.txt", classes),
        )
        for name, some, classes in (
            ("old", train[:half], OLD),
            ("new", train[half:], NEW),
            ("all", train[half:], every),
        )
    }
    scored = written(test, asked.out / "test.txt", every)
    kept = {
        "encoder.from": str(asked.out / "first"), "tuning.keep_labels": True, "train.learning_rate": 0.002
    }  # fmt: skip
    runs: dict[str, tuple[str, float, dict[str, Any]]] = {
        "first": ("old", 1, {}),
        "kept": ("new", 0.5, kept),
        "rehearsed": ("new", 0.5, kept | {"tuning.rehearse": True}),
        "together": ("all", 1, {}),
    }
    for name, (of, share, settings) in runs.items():
        out, (texts, validation) = asked.out / name, data[of]
        epochs = max(1, round(asked.epochs * share))
        if not out.exists():
            budget = {"train.epochs": epochs, "train.validations": epochs}
            ensue.train(
                "tag-lstm-crf", train=texts, valid=validation, out=str(out), settings={**budget, **settings}, threads=1
            )
        found = ensue.load(str(out)).evaluate(scored).per_label
        print(
            name, *(f"{label} {100 * found[label].f1:.1f}" for label in every if label in found), sep="\t", flush=True
        )


if __name__ == "__main__":
    main()
