"""Accuracy on AG News with few texts of `ensue choose`, beside more random texts.

    python benchmarks/choice.py ag_news_test_only/test.csv.xz glove.6B.100d.cut.txt.xz --seeds 3

2,000 of the 7,600 texts (shuffled, seed 0) are for testing, the others are the pool. `ensue choose` starts with 40
random texts, and chooses 40 more texts four times. The features of the classifier are the mean of fixed GloVe vectors.
"""

import argparse
import csv
import json
import lzma
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine
from settings import merge_settings

import ensue
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.text.tokens import words_in

NUM_TEST_TEXTS, RANDOM_SIZES, NUM_ROUNDS, ROUND_SIZE = 2_000, (200, 500), 5, 40
SETTINGS = [
    "features.d_words=0", "features.affixes=0", "features.dropout_words=0", "encoder.kind=none",
    'head.pooling=["mean"]', "head.label_smoothing=0", "train.epochs=40", "train.learning_rate=0.01",
    "train.weight_decay=0", "train.validations=1", "data.valid_fraction=0",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine(seed=0))
    with lzma.open(arguments.texts, "rt", encoding="utf-8", newline="") as file:
        rows = [(label, f"{title}. {text}") for label, title, text in csv.reader(file)]
    random.Random(0).shuffle(rows)
    label_of = {text: label for label, text in rows}
    pool = [text for _, text in rows[NUM_TEST_TEXTS:]]
    scores: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = {word for _, text in rows for word in words_in(text.lower(), "simple")}
        with lzma.open(arguments.vectors, "rt", encoding="utf-8") as file:  # a small file is read faster
            (folder / "vectors.txt").write_text("".join(row for row in file if row.split(" ", 1)[0] in words))

        def write_texts(texts: list[str], file: str) -> Path:
            lines = (json.dumps({"label": label_of[text], "text": text}) + "\n" for text in texts)
            (folder / file).write_text("".join(lines))
            return folder / file

        def train(texts: list[str], seed: int) -> ClassificationPipeline:
            run_settings = [f"features.vectors={folder / 'vectors.txt'}", f"train.seed={seed}"]
            settings = merge_settings(SETTINGS, run_settings, arguments.set)
            file = write_texts(texts, "train.jsonl")
            model = ensue.train(
                "classify-lstm", train=file, out=folder / "run", overwrite=True, settings=settings, threads=1
            )
            assert isinstance(model, ClassificationPipeline)
            return model

        test = write_texts([text for _, text in rows[:NUM_TEST_TEXTS]], "test.jsonl")
        pool_file = write_texts(pool, "pool.jsonl")
        for seed in range(arguments.seeds):
            generator = random.Random(seed)
            for count in RANDOM_SIZES:
                score = 100 * train(generator.sample(pool, count), seed).evaluate(test).accuracy
                scores.setdefault(f"{count} random", []).append(score)
            texts = generator.sample(pool, ROUND_SIZE)
            for _ in range(NUM_ROUNDS - 1):
                model = train(texts, seed)
                choices = model.choose(pool_file, ROUND_SIZE, without=[folder / "train.jsonl"], seed=seed)
                texts += [choice.texts[0] for choice in choices]
            scores.setdefault(f"{len(texts)} chosen", []).append(100 * train(texts, seed).evaluate(test).accuracy)
            print({name: [round(score, 1) for score in values] for name, values in scores.items()}, flush=True)
    for texts_name, values in scores.items():
        print(f"{texts_name}: {np.mean(values):.1f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.1f}")


if __name__ == "__main__":
    main()
