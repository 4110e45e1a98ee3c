"""The peers of `few_labels.py`: classifiers of texts and of pairs of texts by scikit-learn, fastText and Model2Vec.

The features of a pair are |u - v|, u * v and the cosine of u and v, the TF-IDF weights (or vectors) of its texts.
NB-SVM and fastText have the n-grams of both texts as features. A mark before each n-gram tells whether it is in both
texts (NB-SVM), or in which text it is (fastText).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

import ensue

try:
    import fasttext
except ModuleNotFoundError:  # only one peer needs this package
    fasttext = None
try:
    from model2vec import StaticModel
except ModuleNotFoundError:  # only one peer needs this package
    StaticModel = None

Texts = Sequence[tuple[str, ...]]
STRENGTHS = [10 ** (power / 2) for power in range(-2, 8)]
_WORD = re.compile(r"\w+|[^\w\s]")


def word_ngrams(max_n: int) -> TfidfVectorizer:
    """Return a vectorizer with the TF-IDF weights of n-grams of up to `max_n` words."""
    return TfidfVectorizer(ngram_range=(1, max_n), sublinear_tf=True)


def character_ngrams() -> TfidfVectorizer:
    """Return a vectorizer with the TF-IDF weights of n-grams of characters within words."""
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)


class TextFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The features of single texts, or of pairs."""

    def __init__(self, features: Any) -> None:
        self.features = features

    def fit(self, x: Texts, y: Any = None) -> TextFeatures:
        """Learn the n-grams of all texts."""
        self.features.fit([text for texts in x for text in texts])
        return self

    def transform(self, x: Texts) -> Any:
        """Return a row of features for each text or pair."""
        sides = [csr_matrix(self.features.transform(list(side))) for side in zip(*x, strict=True)]
        if len(sides) == 1:
            return sides[0]
        product = sides[0].multiply(sides[1]).tocsr()
        norms = np.prod([np.sqrt(side.multiply(side).sum(1)) for side in sides], axis=0)
        cosine = np.asarray(product.sum(1)) / np.maximum(norms, 1e-9)
        return hstack([abs(sides[0] - sides[1]), product, csr_matrix(cosine)]).tocsr()


class NaiveBayesSVM(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A support vector machine on n-grams scaled by their log-count ratios, with w' = (1 - beta) mean |w| + beta w.

    References:
        Wang & Manning 2012, "Baselines and Bigrams", with their beta.
    """

    def __init__(self, C: float = 1.0, beta: float = 0.25) -> None:
        self.C, self.beta = C, beta

    def fit(self, x: Any, y: Any) -> NaiveBayesSVM:
        """Learn to separate the rows with y = 1 from the others."""
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


def ngrams_of(texts: tuple[str, ...], count: Callable[[str], list[str]]) -> list[str]:
    """Return the n-grams of a text or of a pair. In a pair, the prefix 1 marks n-grams of both texts, 0 the others."""
    sides = [set(count(text)) for text in texts]
    if len(sides) == 1:
        return [*sides[0]]
    shared = sides[0] & sides[1]
    return [f"{int(ngram in shared)}{ngram}" for ngram in sides[0] | sides[1]]


def naive_bayes_svm() -> Any:
    """Return an NB-SVM of words and pairs of words."""
    analyzer = partial(ngrams_of, count=CountVectorizer(ngram_range=(1, 2)).build_analyzer())
    grid = {"estimator__C": STRENGTHS[::2], "estimator__beta": [0.25, 1.0]}
    search = GridSearchCV(OneVsRestClassifier(NaiveBayesSVM()), grid, cv=5)
    return make_pipeline(CountVectorizer(analyzer=analyzer, binary=True), search)


class FastText(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """fastText with words and pairs of words (Joulin et al. 2016). Cross-validation chooses the number of epochs."""

    def fit(self, x: Texts, y: Sequence[str]) -> FastText:
        """Learn from texts and their labels."""
        folds = np.arange(len(x)) % 3
        self.classes_ = np.unique(y)
        pairs = list(zip(x, y, strict=True))

        def accuracy(epochs: int) -> float:
            right = 0
            for fold in range(3):
                train = [pair for pair, number in zip(pairs, folds, strict=True) if number != fold]
                held_out = [pair for pair, number in zip(pairs, folds, strict=True) if number == fold]
                self.model = self._train(train, epochs)
                predicted = self.predict([texts for texts, _ in held_out])
                right += sum(label == answer for label, (_, answer) in zip(predicted, held_out, strict=True))
            return right / len(pairs)

        self.model = self._train(pairs, max((5, 25, 100), key=accuracy))
        return self

    def predict_proba(self, x: Texts) -> Any:
        """Return the probability of each class."""
        rows = []
        for texts in x:
            answers = self.model.f.predict(_words(texts) + "\n", -1, 0.0, "strict")
            probabilities = {label.removeprefix("__label__"): p for p, label in answers}
            rows.append([probabilities.get(str(label), 0.0) for label in self.classes_])
        return np.array(rows)

    def predict(self, x: Texts) -> Any:
        """Return the most probable class of each text."""
        return self.classes_[self.predict_proba(x).argmax(1)]

    def _train(self, pairs: list[tuple[tuple[str, ...], str]], epochs: int) -> Any:
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            for texts, label in pairs:
                print(f"__label__{label}", _words(texts), file=file)
            file.flush()
            sizes = {"dim": 50, "wordNgrams": 2, "bucket": 100_000, "minCount": 1}
            return fasttext.train_supervised(file.name, epoch=epochs, lr=0.5, thread=1, verbose=0, **sizes)


def _words(texts: tuple[str, ...]) -> str:
    """Return the words of a text, or of a pair with 1 or 2 before each word, the number of its text."""
    marks = [""] if len(texts) == 1 else ["1", "2"]
    sides = zip(marks, texts, strict=True)
    return " ".join(mark + word for mark, text in sides for word in _WORD.findall(text.lower()))


def embed(texts: Sequence[str]) -> Any:
    """Return the mean of the word vectors of each text, with the vectors of `en-vectors`."""
    return ensue.load("en-vectors").embed(list(texts))


@cache
def static_model() -> Any:
    """Return the static sentence model in the folder that the environment variable MODEL2VEC names."""
    return StaticModel.from_pretrained(os.environ["MODEL2VEC"])


def encode(texts: Sequence[str]) -> Any:
    """Return Model2Vec's vectors of texts."""
    return static_model().encode(list(texts)).astype(np.float32)


def regression(*features: Any) -> Any:
    """Return a logistic regression of features."""
    union = TextFeatures(make_union(*features))
    return make_pipeline(union, LogisticRegressionCV(Cs=STRENGTHS, cv=5, max_iter=1_000))


PEERS: dict[str, Callable[[], Any]] = {
    "TF-IDF, words": lambda: regression(word_ngrams(1)),
    "TF-IDF, pairs of words": lambda: regression(word_ngrams(2)),
    "TF-IDF, with characters": lambda: regression(word_ngrams(2), character_ngrams()),
    "NB-SVM": naive_bayes_svm,
    "fastText": FastText,
    "en-vectors, logistic regression": lambda: regression(FunctionTransformer(embed)),
    "Model2Vec, logistic regression": lambda: regression(FunctionTransformer(encode)),
}
