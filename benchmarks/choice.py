"""How well a classifier of few chosen texts does beside one of more random texts: AG News.

    python benchmarks/choice.py ag_news_test_only/test.csv.xz glove.6B.100d.cut.txt.xz --seeds 3

2,000 of the 7,600 texts (shuffled, seed 0) are the test, the others the pool. `ensue choose` chooses 40 texts, four
times, after 40 random ones. The classifier has the mean of fixed GloVe vectors.
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

import ensue
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.text.tokens import words_in

TEST, RANDOM, ROUNDS, OF_A_ROUND = 2_000, (200, 500), 5, 40
SETTINGS = [
    "features.d_words=0", "features.affixes=0", "features.dropout_words=0", "encoder.kind=none",
    'head.pooling=["mean"]', "head.label_smoothing=0", "train.epochs=40", "train.learning_rate=0.01",
    "train.weight_decay=0", "train.validations=1", "data.valid_fraction=0",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with lzma.open(options.texts, "rt", encoding="utf-8", newline="") as file:
        rows = [(label, f"{title}. {text}") for label, title, text in csv.reader(file)]
    random.Random(0).shuffle(rows)
    label_of = {text: label for label, text in rows}
    pool = [text for _, text in rows[TEST:]]
    scores: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = {word for _, text in rows for word in words_in(text.lower(), "simple")}
        with lzma.open(options.vectors, "rt", encoding="utf-8") as file:  # those of these texts are read sooner
            (folder / "vectors.txt").write_text("".join(row for row in file if row.split(" ", 1)[0] in words))

        def written(texts: list[str], file: str) -> Path:
            lines = (json.dumps({"label": label_of[text], "text": text}) + "\n" for text in texts)
            (folder / file).write_text("".join(lines))
            return folder / file

        def trained(texts: list[str], seed: int) -> ClassificationPipeline:
            settings = [*SETTINGS, f"features.vectors={folder / 'vectors.txt'}", f"train.seed={seed}", *options.set]
            train = written(texts, "train.jsonl")
            found = ensue.train(
                "classify-lstm", train=train, out=folder / "run", overwrite=True, settings=settings, threads=1
            )
            assert isinstance(found, ClassificationPipeline)
            return found

        test = written([text for _, text in rows[:TEST]], "test.jsonl")
        every = written(pool, "pool.jsonl")
        for seed in range(options.seeds):
            draw = random.Random(seed)
            for count in RANDOM:
                score = 100 * trained(draw.sample(pool, count), seed).evaluate(test).accuracy
                scores.setdefault(f"{count} random", []).append(score)
            texts = draw.sample(pool, OF_A_ROUND)
            for _ in range(ROUNDS - 1):
                model = trained(texts, seed)
                found = model.choose(every, OF_A_ROUND, without=[folder / "train.jsonl"], seed=seed)
                texts += [each.texts[0] for each in found]
            scores.setdefault(f"{len(texts)} chosen", []).append(100 * trained(texts, seed).evaluate(test).accuracy)
            print({name: [round(score, 1) for score in each] for name, each in scores.items()}, flush=True)
    for what, each in scores.items():
        print(f"{what}: {np.mean(each):.1f} ± {np.std(each, ddof=1) if len(each) > 1 else 0:.1f}")


if __name__ == "__main__":
    main()
