"""Classifiers from 50 to 1,000 labeled texts, beside TF-IDF and logistic regression.

    python benchmarks/few_labels.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 5]
        [--methods NAME ...]

DATA is the folder of the data sets (`text_sets.py`). A draw takes `size` training texts at random, the same for all
methods, which are tested on the same `TESTED` test texts. ensue's methods are recipes with their defaults. The peers
choose the strength of their regularization by five folds. Each result is a line of OUT/results.jsonl; a result that is
there is not measured again. The script prints means and standard deviations over the draws, with the seconds of
training, in one thread. The estimate of `classify-linear` is its accuracy in cross-validation.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classification import written
from machine import describe_machine
from text_sets import Example, ag_news, cr, imdb, mpqa, mr, sms, sst2, subj

import ensue

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

SETS = {"cr": cr, "mr": mr, "subj": subj, "mpqa": mpqa, "sst2": sst2, "imdb": imdb, "ag-news": ag_news, "sms": sms}
RECIPES = ("classify-linear", "classify-bag", "classify-lstm")
TESTED = 2_000
STRENGTHS = [10 ** (power / 2) for power in range(-2, 8)]
Result = dict[str, Any]


def words(longest: int) -> TfidfVectorizer:
    """Return TF-IDF weights of words and n-grams of words."""
    return TfidfVectorizer(ngram_range=(1, longest), sublinear_tf=True)


class NaiveBayesSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A support vector machine on n-grams scaled by their log-count ratios, with w' = (1 - beta) mean |w| + beta w.

    References:
        Wang & Manning 2012, "Baselines and Bigrams", with their beta.
    """

    def __init__(self, C: float = 1.0, beta: float = 0.25) -> None:
        self.C, self.beta = C, beta

    def fit(self, x: Any, y: Any) -> NaiveBayesSVM:
        """Learn to tell the rows with y = 1 from the others."""
        self.classes_ = np.unique(y)
        inside, outside = (1 + np.asarray(x[y == label].sum(0)).ravel() for label in (1, 0))
        self.ratios = np.log(inside / inside.sum()) - np.log(outside / outside.sum())
        svm = LinearSVC(C=self.C).fit(x.multiply(self.ratios).tocsr(), y)
        w = svm.coef_[0]
        self.weights, self.bias = (1 - self.beta) * np.abs(w).mean() + self.beta * w, svm.intercept_[0]
        return self

    def decision_function(self, x: Any) -> Any:
        """Return the score of y = 1."""
        return x @ (self.ratios * self.weights) + self.bias

    def predict(self, x: Any) -> Any:
        """Return the class of each row."""
        return self.classes_[(self.decision_function(x) > 0).astype(int)]


def tfidf(*features: Any) -> Any:
    """Return a logistic regression of TF-IDF weights."""
    return make_pipeline(make_union(*features), LogisticRegressionCV(Cs=STRENGTHS, cv=5, max_iter=1_000))


def naive_bayes_svm() -> Any:
    """Return an NB-SVM of words and pairs of words."""
    ngrams = CountVectorizer(ngram_range=(1, 2), binary=True)
    grid = {"estimator__C": STRENGTHS[::2], "estimator__beta": [0.25, 1.0]}
    search = GridSearchCV(OneVsRestClassifier(NaiveBayesSVM()), grid, cv=5)
    return make_pipeline(ngrams, search)


PEERS: dict[str, Callable[[], Any]] = {
    "TF-IDF, words": lambda: tfidf(words(1)),
    "TF-IDF, pairs of words": lambda: tfidf(words(2)),
    "TF-IDF, with characters": lambda: tfidf(
        words(2), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    ),
    "NB-SVM": naive_bayes_svm,
}


def by_recipe(recipe: str, train: Path, test: Path, out: Path) -> Result:
    """Train a recipe, and return its accuracy, seconds, bytes of weights, and cross-validated estimate."""
    start = time.perf_counter()
    model = ensue.train(recipe, train=str(train), out=out, threads=1, overwrite=True)
    seconds = time.perf_counter() - start
    torch.set_num_threads(1)
    scores = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    estimate = [record["scores"]["accuracy"] for record in scores if record["kind"] == "valid"][-1]
    return {
        "accuracy": model.evaluate(str(test)).as_json()["accuracy"], "seconds": seconds, "estimate": estimate,
        "bytes": (out / "model.safetensors").stat().st_size,
    }  # fmt: skip


def by_regression(peer: str, train: Sequence[Example], test: Sequence[Example]) -> Result:
    """Fit a peer, and return its accuracy and seconds."""
    start = time.perf_counter()
    with threadpool_limits(1):
        model = PEERS[peer]()
        model.fit([example.texts[0] for example in train], [example.label for example in train])
        seconds = time.perf_counter() - start
        accuracy = model.score([example.texts[0] for example in test], [example.label for example in test])
    return {"accuracy": float(accuracy), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 300, 1_000])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=[*RECIPES, *PEERS], default=["classify-linear", *PEERS])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    keys = ("set", "size", "draw", "method")
    measured = {tuple(result[key] for key in keys) for result in results}
    print(describe_machine(seed=0))
    for name in options.sets:
        split = next(SETS[name](options.data))
        test = random.Random(0).sample(split.test, min(TESTED, len(split.test)))
        for size in options.sizes:
            for draw in range(options.draws):
                train = random.Random(draw).sample([*split.train, *split.dev], size)
                paths = [written(part, options.out / f"{kind}.jsonl") for kind, part in (("a", train), ("b", test))]
                for method in options.methods:
                    key = (name, size, draw, method)
                    if key in measured:
                        continue
                    found = (
                        by_regression(method, train, test)
                        if method in PEERS
                        else by_recipe(method, *paths, options.out / "run")
                    )
                    results.append(dict(zip(keys, key, strict=True)) | found)
                    with file.open("a") as opened:
                        print(json.dumps(results[-1]), file=opened)
    show(results, options)


def show(results: list[Result], options: argparse.Namespace) -> None:
    """Print a table: a row for each set and size, a column for each method."""
    print(f"| data | texts | {' | '.join(options.methods)} |\n|---|---|{'---|' * len(options.methods)}")
    cells = defaultdict(list)
    for result in results:
        cells[result["set"], result["size"], result["method"]].append(result)
    for name in options.sets:
        for size in options.sizes:
            row = []
            for method in options.methods:
                scores = [100 * result["accuracy"] for result in cells[name, size, method]]
                seconds = statistics.mean(result["seconds"] for result in cells[name, size, method])
                row.append(f"{statistics.mean(scores):.1f} ± {statistics.pstdev(scores):.1f}, {seconds:.1f} s")
            print(f"| {name} | {size} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
