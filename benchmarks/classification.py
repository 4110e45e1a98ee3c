"""Classifiers of ensue beside TF-IDF with logistic regression, on the same data, with one thread.

    python benchmarks/classification.py DATA [NAME ...] [--seeds 3] [--set KEY=VALUE] [--dev]

DATA is a folder with the data sets in `DATA_SETS`; without names all of them are measured. `text_sets.py` describes how
each is divided. The test data are scored once. `--dev` scores the development data instead, for choosing settings.

The baseline is scikit-learn's `LogisticRegression` on sublinear TF-IDF weights of words and pairs of words. The
development data choose its C among `STRENGTHS`, as they choose the weights of ensue. For two texts with weights a and b
the features are a, b, |a - b|, a * b and the cosine of a and b. The seconds of the baseline are those of the features
and of the fit with the chosen C, without the search. The seconds of ensue are those of training, as the run records
them. The scores of a seed are computed over all folds; the spread is the standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from json_lines import training_seconds
from machine import describe_machine
from settings import merge_settings
from text_sets import SPLIT_SEED, Example, Split, ag_news, cola, imdb, mrpc, sms, sst2

import ensue
from ensue.errors import EnsueError

try:
    import scipy.sparse
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SCORES: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "accuracy": accuracy_score,
    "macro F1": lambda gold, predicted: f1_score(gold, predicted, average="macro"),
    "Matthews": matthews_corrcoef,
}


@dataclass(frozen=True)
class DataSet:
    splits: Callable[[Path], Iterator[Split]]
    recipe: str
    settings: tuple[str, ...] = ()
    selection_score: str = "accuracy"
    """The score that chooses C of the baseline."""


PAIRS_OF_WORDS = ("head.ngrams=2", "head.ngram_buckets=65536")
SHORT_TEXTS = (
    "head.ngrams=2", "head.ngram_buckets=262144", "head.dropout_ngrams=0.5",
    "train.learning_rate=2.0", "train.epochs=24",
)  # fmt: skip
"""An epoch of few short texts is small, so there are more epochs."""
DATA_SETS = {
    "sst2": DataSet(sst2, "classify-lstm", PAIRS_OF_WORDS),
    "sms": DataSet(sms, "classify-lstm"),
    "cola": DataSet(cola, "classify-lstm", PAIRS_OF_WORDS, selection_score="Matthews"),
    "mrpc": DataSet(mrpc, "classify-pairs"),
    "ag-news": DataSet(ag_news, "classify-bag", SHORT_TEXTS),
    "imdb": DataSet(imdb, "classify-bag"),
}
"""The recipe and the settings for each data set."""


class Predictions(NamedTuple):
    """The predicted labels of the scored examples, and the seconds of training."""

    labels: list[str]
    seconds: float


def predict_with_ensue(
    recipe: str, settings: Sequence[str], split: Split, scored: list[Example], run: Path
) -> Predictions:
    """Train ensue unless the run is finished, and predict."""
    train = write_examples(split.train, run.with_name("train.jsonl"))
    valid = write_examples(split.dev, run.with_name("dev.jsonl"))
    classifier: Any = ensue.train(
        recipe, train=train, valid=valid, out=run, settings=settings, device="cpu", threads=1, resume=True
    )
    texts = [example.texts if len(example.texts) > 1 else example.texts[0] for example in scored]
    return Predictions([answer.label for answer in classifier.predict(texts)], training_seconds(run))


def write_examples(examples: Iterable[Example], path: Path) -> Path:
    """Write examples as JSON lines. Return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for example in examples:
            names = ("text",) if len(example.texts) == 1 else ("text1", "text2")
            record = dict(zip(names, example.texts, strict=True)) | {"label": example.label}
            print(json.dumps(record, ensure_ascii=False), file=file)
    return path


def predict_with_regression(split: Split, scored: list[Example], selection_score: str) -> Predictions:
    """Fit TF-IDF and logistic regression with the C that is best on the development data, and predict."""
    with threadpool_limits(1):
        started = time.perf_counter()
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        vectorizer.fit(text for example in split.train for text in example.texts)
        train = features(vectorizer, split.train)
        vector_seconds = time.perf_counter() - started
        dev = features(vectorizer, split.dev)
        best: Any = None
        best_score, best_seconds = float("-inf"), 0.0
        for strength in STRENGTHS:
            started = time.perf_counter()
            model = LogisticRegression(C=strength, max_iter=1000).fit(train, labels_of(split.train))
            seconds = time.perf_counter() - started
            score = SCORES[selection_score](labels_of(split.dev), model.predict(dev))
            if score > best_score:
                best, best_score, best_seconds = model, score, seconds
        return Predictions(best.predict(features(vectorizer, scored)).tolist(), vector_seconds + best_seconds)


def features(vectorizer: Any, examples: list[Example]) -> Any:
    """Return a row of features for each text or pair."""
    vectors = [vectorizer.transform(texts) for texts in zip(*(example.texts for example in examples), strict=True)]
    if len(vectors) == 1:
        return vectors[0]
    a, b = vectors
    product = a.multiply(b)
    cosine = np.asarray(product.sum(axis=1)).reshape(-1, 1)
    return scipy.sparse.hstack([a, b, abs(a - b), product, cosine], format="csr")


def labels_of(examples: Iterable[Example]) -> list[str]:
    return [example.label for example in examples]


def measure(name: str, arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the rows of a data set: ensue and the baseline."""
    data_set = DATA_SETS[name]
    recipe, settings = arguments.recipe or data_set.recipe, merge_settings(data_set.settings, arguments.settings)
    splits = [truncate(split, arguments.limit) for split in data_set.splits(arguments.data)]
    scored = [split.dev if arguments.dev else split.test for split in splits]
    gold = [label for part in scored for label in labels_of(part)]
    ours = []
    for seed in range(arguments.seeds):
        print(f"{name}: {recipe}, seed {seed} ...", file=sys.stderr)
        seed_settings = merge_settings(settings, [f"train.seed={seed}"])
        runs = [folder / name / f"fold-{number}" / f"seed-{seed}" for number in range(len(splits))]
        folds = zip(splits, scored, runs, strict=True)
        ours.append([predict_with_ensue(recipe, seed_settings, split, part, run) for split, part, run in folds])
    theirs = [
        predict_with_regression(split, part, data_set.selection_score)
        for split, part in zip(splits, scored, strict=True)
    ]
    sizes = " / ".join(f"{len(part):,}" for part in (splits[0].train, splits[0].dev, scored[0]))
    sizes += f", {len(splits)} folds" if len(splits) > 1 else ""
    yield row(f"{name} ({sizes})", f"ensue, {recipe}", gold, ours)
    yield row("", "TF-IDF + logistic regression", gold, [theirs])


def truncate(split: Split, limit: int | None) -> Split:
    """Return a random sample of each part, at most `limit` texts."""
    return split if limit is None else Split(*(random.Random(0).sample(part, min(limit, len(part))) for part in split))


def row(data: str, model: str, gold: list[str], seeds: list[list[Predictions]]) -> str:
    """Return a row of the table: scores over all folds, with mean and spread over the seeds."""
    predicted = [[label for fold in folds for label in fold.labels] for folds in seeds]
    cells = [format_mean([100 * score(gold, labels) for labels in predicted]) for score in SCORES.values()]
    seconds = statistics.mean(sum(fold.seconds for fold in folds) for folds in seeds)
    return f"| {data} | {model} | {' | '.join(cells)} | {seconds:,.1f} |"


def format_mean(values: list[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder with the data sets")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(DATA_SETS)}; default: all")
    parser.add_argument("--seeds", type=int, default=3, help="the number of runs of ensue on each data set")
    parser.add_argument("--recipe", help="in place of the recipes of the table")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dev", action="store_true", help="score the development data, not the test data")
    parser.add_argument("--limit", type=int, help="the maximum number of texts in each part")
    parser.add_argument(
        "--out", type=Path, help="the folder in which data and runs are kept; default: they are removed"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in DATA_SETS]:
        parser.error(f"no data set {unknown[0]}; known: {', '.join(DATA_SETS)}")
    return arguments


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    print(describe_machine(seed=SPLIT_SEED))
    print(
        f"| data (train / dev / {'dev' if arguments.dev else 'test'} texts) | model | {' | '.join(SCORES)} | seconds |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names or DATA_SETS:
            for line in measure(name, arguments, arguments.out or Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
