"""Classifiers from 50 to 1,000 labeled texts, beside TF-IDF and logistic regression.

    python benchmarks/few_labels.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 5]
        [--methods NAME ...]

DATA is the folder of the data sets (`text_sets.py`). The method `with en-vectors` is `classify-linear` with
`features.vectors`, and needs the package `ensue-en-vectors` (docs/installed-models.md); the peer fastText needs
fasttext-wheel. A draw takes `size` training texts at random, the same for all
methods, which are tested on the same 2,000 test texts. ensue's methods are recipes with their defaults. The peers
choose the strength of their regularization by five folds. Each result is a line of OUT/results.jsonl; a result that is
there is not measured again. The script prints means and standard deviations over the draws, with the processor
seconds of training, in one thread. The estimate of `classify-linear` is its accuracy in cross-validation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from classification import written
from few_examples import Result, measure_all, train_recipe
from text_sets import Example, ag_news, cr, imdb, mpqa, mr, sms, sst2, subj

import ensue

try:
    import fasttext
except ModuleNotFoundError:  # needed by one peer alone
    fasttext = None

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.svm import LinearSVC
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

SETS = {"cr": cr, "mr": mr, "subj": subj, "mpqa": mpqa, "sst2": sst2, "imdb": imdb, "ag-news": ag_news, "sms": sms}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "classify-linear": ("classify-linear", {}),
    "with en-vectors": ("classify-linear", {"features.vectors": "en-vectors"}),
    "classify-bag": ("classify-bag", {}),
    "classify-lstm": ("classify-lstm", {}),
}
STRENGTHS = [10 ** (power / 2) for power in range(-2, 8)]


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


class FastText(BaseEstimator):  # type: ignore[misc]
    """fastText with words and pairs of words (Joulin et al. 2016). Three folds choose the number of epochs."""

    def fit(self, texts: list[str], labels: list[str]) -> FastText:
        """Learn from texts and their labels."""
        folds = np.arange(len(texts)) % 3
        pairs = list(zip(texts, labels, strict=True))

        def accuracy(epochs: int) -> float:
            right = 0
            for fold in range(3):
                inside = [pair for pair, number in zip(pairs, folds, strict=True) if number != fold]
                outside = [pair for pair, number in zip(pairs, folds, strict=True) if number == fold]
                model = self._train(inside, epochs)
                right += sum(self._label(model, text) == label for text, label in outside)
            return right / len(pairs)

        self.model = self._train(pairs, max((5, 25, 100), key=accuracy))
        return self

    def score(self, texts: list[str], labels: list[str]) -> float:
        """Return the accuracy."""
        return sum(self._label(self.model, text) == label for text, label in zip(texts, labels, strict=True)) / len(
            labels
        )

    def _train(self, pairs: list[tuple[str, str]], epochs: int) -> Any:
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            for text, label in pairs:
                print(f"__label__{label}", *_WORD.findall(text.lower()), file=file)
            file.flush()
            sizes = {"dim": 50, "wordNgrams": 2, "bucket": 100_000, "minCount": 1}
            return fasttext.train_supervised(file.name, epoch=epochs, lr=0.5, thread=1, verbose=0, **sizes)

    def _label(self, model: Any, text: str) -> str:
        ((_, label),) = model.f.predict(" ".join(_WORD.findall(text.lower())) + "\n", 1, 0.0, "strict")
        return str(label).removeprefix("__label__")


_WORD = re.compile(r"\w+|[^\w\s]")


def embedded(texts: Sequence[str]) -> Any:
    """Return the means of the vectors of words of `en-vectors`."""
    return ensue.load("en-vectors").embed(list(texts))


PEERS: dict[str, Callable[[], Any]] = {
    "TF-IDF, words": lambda: tfidf(words(1)),
    "TF-IDF, pairs of words": lambda: tfidf(words(2)),
    "TF-IDF, with characters": lambda: tfidf(
        words(2), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    ),
    "NB-SVM": naive_bayes_svm,
    "fastText": FastText,
    "en-vectors, logistic regression": lambda: make_pipeline(
        FunctionTransformer(embedded), LogisticRegressionCV(Cs=STRENGTHS, cv=5, max_iter=1_000)
    ),
}


def read(name: str, data: Path) -> tuple[list[Example], list[Example]]:
    """Return the examples for training and for testing."""
    split = next(SETS[name](data))
    return [*split.train, *split.dev], split.test


def measure(name: str, method: str, train: Sequence[Example], test: Sequence[Example], folder: Path) -> Result:
    """Fit a method, and return its accuracy and seconds."""
    if method not in PEERS:
        files = [written(examples, folder / f"{kind}.jsonl") for kind, examples in (("train", train), ("test", test))]
        recipe, settings = RECIPES[method]
        return train_recipe(recipe, *files, folder / "run", "accuracy", **settings)
    start = time.process_time()
    with threadpool_limits(1):
        model = PEERS[method]()
        model.fit([example.texts[0] for example in train], [example.label for example in train])
        seconds = time.process_time() - start
        accuracy = model.score([example.texts[0] for example in test], [example.label for example in test])
    return {"score": float(accuracy), "seconds": seconds}


if __name__ == "__main__":
    sets = {name: partial(read, name) for name in SETS}
    defaults = ["classify-linear", "with en-vectors", *PEERS]
    measure_all(__doc__, sets, [*RECIPES, *PEERS], measure, draws=5, tested=2_000, defaults=defaults)
