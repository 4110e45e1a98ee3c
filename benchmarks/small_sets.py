"""Classifiers of seven data sets with 1,000 labels each: bags of words with and without a teacher, and baselines.

    python benchmarks/small_sets.py DATA SENTENCE_MODEL OUT [--sets NAME ...] [--models NAME ...] [--seeds 3]

DATA is the folder of the data sets. SENTENCE_MODEL is a run for `ensue embed`, such as an imported all-MiniLM-L6-v2.
From the training and development data of a set (`text_sets.py`), a fixed sample of `NUM_TRAINING_TEXTS` texts is drawn.
The seed chooses the `NUM_LABELED` texts of this sample that have labels; the other texts are the unlabeled pool. All
models are tested on the same sample of at most `NUM_TEST_TEXTS` texts. All texts are truncated to `MAX_WORDS` words.

| model | what it is |
|---|---|
| tf-idf | words and pairs of words, logistic regression (scikit-learn) |
| bag | `classify-bag` |
| frozen | logistic regression on the sentence model's vectors |
| taught | `classify-bag`, distilled from `frozen` with the labeled texts and the pool |
| static | logistic regression on the vectors of a static student (`vectors-static`), distilled on all training texts |

Five-fold cross-validation on the labeled texts chooses the C of a regression. A fifth of the labeled texts chooses the
settings of `bag` and `taught` (`BAGS`). Then a model with the chosen settings is trained on all labeled
texts, and tested once. Each result is a line of OUT/results.jsonl; a finished result is not measured again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classification import STRENGTHS, write_examples
from json_lines import Record, append_json_line, read_json_lines
from machine import describe_machine
from text_sets import Example, Split, ag_news, cr, imdb, mpqa, mr, sst2, subj

import ensue

try:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

SETS: dict[str, Callable[[Path], Iterator[Split]]] = {
    "sst2": sst2, "cr": cr, "mr": mr, "subj": subj, "mpqa": mpqa, "ag-news": ag_news, "imdb": imdb,
}  # fmt: skip
NUM_LABELED, NUM_TRAINING_TEXTS, NUM_TEST_TEXTS, MAX_WORDS = 1_000, 2_500, 1_000, 100
NUM_HELD_OUT = NUM_LABELED // 5
BAGS = {
    "words": ("head.ngrams=1", "train.epochs=40", "train.learning_rate=2.0"),
    "pairs": ("head.ngrams=2", "train.epochs=40", "train.learning_rate=2.0", "head.dropout_ngrams=0.5"),
}
BAG_SETTINGS = ("features.min_count=1", "head.ngram_buckets=131072", "train.validations=1")
MODELS = ("tf-idf", "bag", "taught", "static", "frozen")


class DataSet:
    """The sampled and truncated examples of a data set."""

    def __init__(self, name: str, data: Path) -> None:
        split = next(SETS[name](data))
        generator = random.Random(0)
        self.name = name
        examples = generator.sample([*split.train, *split.dev], NUM_TRAINING_TEXTS)
        self.train = list(map(truncate, examples))
        self.test = list(map(truncate, generator.sample(split.test, min(NUM_TEST_TEXTS, len(split.test)))))

    @property
    def texts(self) -> list[str]:
        return [example.texts[0] for example in (*self.train, *self.test)]

    def order(self, seed: int) -> list[int]:
        """Return the indices of the training texts in random order; the first `NUM_LABELED` have labels."""
        return random.Random(seed).sample(range(NUM_TRAINING_TEXTS), NUM_TRAINING_TEXTS)


def truncate(example: Example) -> Example:
    return Example((" ".join(example.texts[0].replace("<br />", " ").split()[:MAX_WORDS]),), example.label)


class Benchmark:
    """The measurements, with the vectors of all texts and the results as files in a folder."""

    def __init__(self, data: Path, sentence_model: Path, out: Path) -> None:
        self.data, self.sentence_model, self.out = data, sentence_model, out
        out.mkdir(parents=True, exist_ok=True)
        self.results = out / "results.jsonl"

    @cached_property
    def sets(self) -> dict[str, DataSet]:
        return {name: DataSet(name, self.data) for name in SETS}

    @cached_property
    def static(self) -> Any:
        """The static student, distilled on the training texts of all sets."""
        run = self.out / "static"
        if not (run / "README.md").exists():
            words = self.out / "words.txt"
            texts = [example.texts[0] for data_set in self.sets.values() for example in data_set.train]
            words.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
            ensue.distill(self.sentence_model, "vectors-static", pool=words, out=run, device="cpu", overwrite=True)
        return ensue.load(run, device="cpu")

    def vectors(self, data_set: DataSet, kind: str) -> np.ndarray[Any, Any]:
        """Return the vectors of the training texts, followed by those of the test texts."""
        path = self.out / f"{data_set.name}-{kind}.npy"
        if not path.exists():
            run: Any = self.static if kind == "static" else ensue.load(self.sentence_model, device="cpu")
            np.save(path, run.embed(data_set.texts))
        return np.load(path)

    def measure(self, name: str, model: str, seed: int) -> None:
        """Measure a model, and append the result to the file."""
        data_set, started = self.sets[name], time.process_time()
        order = data_set.order(seed)
        labels = np.array([example.label for example in data_set.train])
        gold = np.array([example.label for example in data_set.test])
        labeled, pool = order[:NUM_LABELED], order[NUM_LABELED:]
        texts = np.array(data_set.texts, object)
        setting: Any
        if model == "tf-idf":
            vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
            fitted = make_pipeline(vectorizer, regression(seed)).fit(texts[labeled], labels[labeled])
            predicted, setting = fitted.predict(texts[NUM_TRAINING_TEXTS:]), strength(fitted[-1])
        elif model in ("frozen", "static"):
            vectors = self.vectors(data_set, model)
            fitted = regression(seed).fit(vectors[labeled], labels[labeled])
            predicted, setting = fitted.predict(vectors[NUM_TRAINING_TEXTS:]), strength(fitted)
        else:
            predicted, setting = self.bag(data_set, labeled, pool if model == "taught" else [], seed)
        line = {
            "set": name,
            "model": model,
            "seed": seed,
            "accuracy": round(100 * float((predicted == gold).mean()), 2),
        }
        line |= {"chosen": setting, "seconds": round(time.process_time() - started, 1)}
        append_json_line(self.results, line)
        print(json.dumps(line), file=sys.stderr)

    def bag(self, data_set: DataSet, labeled: Sequence[int], pool: Sequence[int], seed: int) -> tuple[Any, str]:
        """Choose the settings of a bag on a fifth of the labeled texts, and train it on all labeled texts.

        Returns:
            The predicted labels of the test texts, and the name of the settings.
        """
        scores = {}
        for name, settings in BAGS.items():
            held_out = [data_set.train[index] for index in labeled[:NUM_HELD_OUT]]
            labels = self._train_bag(data_set, labeled[NUM_HELD_OUT:], pool, held_out, settings, seed)
            scores[name] = sum(label == example.label for label, example in zip(labels, held_out, strict=True))
        best = max(scores, key=scores.__getitem__)
        return np.array(self._train_bag(data_set, labeled, pool, data_set.test, BAGS[best], seed)), best

    def _train_bag(
        self, data_set: DataSet, labeled: Sequence[int], pool: Sequence[int], test: list[Example],
        settings: Sequence[str], seed: int,
    ) -> list[str]:  # fmt: skip
        """Train a bag on the labeled texts, with a pool by distillation. Return the labels of the test texts."""
        folder = self.out / "bag"
        shutil.rmtree(folder, ignore_errors=True)
        train = write_examples([data_set.train[index] for index in labeled], folder / "train.jsonl")
        options: dict[str, Any] = {
            "settings": [*BAG_SETTINGS, *settings, f"train.seed={seed}"],
            "device": "cpu",
            "threads": 1,
        }
        if not pool:
            options["settings"].append("data.valid_fraction=0.01")  # validates once, so the last weights are taken
            student: Any = ensue.train("classify-bag", train=train, out=folder / "run", **options)
        else:
            vectors = self.vectors(data_set, "frozen")
            fitted = regression(seed).fit(vectors[labeled], [data_set.train[index].label for index in labeled])
            indices, answers = [*labeled, *pool], folder / "answers.jsonl"
            for index, row in zip(indices, fitted.predict_proba(vectors[indices]).tolist(), strict=True):
                probabilities = dict(zip(fitted.classes_.tolist(), row, strict=True))
                append_json_line(answers, {"text": data_set.train[index].texts[0], "probabilities": probabilities})
            valid = write_examples([data_set.train[index] for index in labeled[:NUM_HELD_OUT]], folder / "valid.jsonl")
            student = ensue.distill(
                answers, "classify-bag", train=train, pool=answers, valid=valid, out=folder / "run", **options
            )
        return [answer.label for answer in student.predict([example.texts[0] for example in test])]


def regression(seed: int) -> Any:
    return LogisticRegressionCV(Cs=list(STRENGTHS), cv=5, max_iter=1000, random_state=seed)


def strength(fitted: Any) -> float:
    return float(np.ravel(fitted.C_)[0])


def table(results: list[Record]) -> Iterator[str]:
    """Yield the rows of the table: the mean and the standard deviation of the accuracy over the seeds."""
    yield f"| set | {' | '.join(MODELS)} |"
    yield "|" + "---|" * (len(MODELS) + 1)
    for name in SETS:
        cells = []
        for model in MODELS:
            scores = [result["accuracy"] for result in results if (result["set"], result["model"]) == (name, model)]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{statistics.mean(scores):.1f}{spread}" if scores else "-")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sentence_model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    benchmark = Benchmark(arguments.data, arguments.sentence_model, arguments.out)
    print(describe_machine(seed=0))
    with threadpool_limits(1):
        for seed in range(arguments.seeds):
            for name in arguments.sets:
                for model in arguments.models:
                    results = read_json_lines(benchmark.results)
                    if (name, model, seed) not in {(line["set"], line["model"], line["seed"]) for line in results}:
                        benchmark.measure(name, model, seed)
    print("\n".join(table(read_json_lines(benchmark.results))))


if __name__ == "__main__":
    main()
