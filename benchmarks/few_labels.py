"""Classifiers from 50 to 1,000 labeled texts, beside TF-IDF and logistic regression.

    python benchmarks/few_labels.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 5]
        [--methods NAME ...]

DATA is the folder of the data sets (`text_sets.py`): single texts, and the pairs of MRPC and RTE. Methods of ensue are
recipes with their default settings. The method `with en-vectors` is `classify-linear` with `features.vectors`; it needs
the package `ensue-en-vectors` (docs/installed-models.md). The peers (`few_labels_peers.py`) choose the strength of
their regularization by five-fold cross-validation, and fastText its number of epochs by three-fold cross-validation.
fastText needs the package fasttext-wheel. Model2Vec needs the package `model2vec`, and a static sentence model in the
folder that the environment variable MODEL2VEC names. spaCy, which is measured on single texts only, is installed in
OUT/spacy and trained there by `spacy_few.py`.

A draw is a random sample of `size` training texts, the same for all methods. All methods are tested on the same 2,000
test texts, or on all test texts if there are fewer. Each result is a line of OUT/results.jsonl; a finished result is
not measured again. The script prints means and standard deviations over the draws, and the processor seconds of
training, in one thread. A result also has the processor seconds of the test, the bytes of the model (except for
fastText), and the calibration error if the method has probabilities. The estimate of `classify-linear` is its accuracy
in cross-validation.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from classification import write_examples
from few_examples import Result, measure_all, train_recipe
from spacy_process import train_spacy
from text_sets import Example, ag_news, cr, imdb, mpqa, mr, mrpc, names, rte, sms, sst2, subj

from ensue.metrics.classification import ClassificationTally

try:
    from few_labels_peers import PEERS
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

SETS = {
    "cr": cr, "mr": mr, "subj": subj, "mpqa": mpqa, "sst2": sst2, "imdb": imdb, "ag-news": ag_news, "sms": sms,
    "names": names, "mrpc": mrpc, "rte": rte,
}  # fmt: skip
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "classify-linear": ("classify-linear", {}),
    "with en-vectors": ("classify-linear", {"features.vectors": "en-vectors"}),
    "classify-pairs": ("classify-pairs", {}),
    "classify-bag": ("classify-bag", {}),
    "classify-lstm": ("classify-lstm", {}),
}
SPACY = "spaCy"


def read(name: str, data: Path) -> tuple[list[Example], list[Example]]:
    """Return the examples for training and for testing."""
    split = next(SETS[name](data))
    return [*split.train, *split.dev], split.test


def measure(name: str, method: str, train: Sequence[Example], test: Sequence[Example], folder: Path) -> Result:
    """Train a method. Return its accuracy, seconds, bytes and calibration error."""
    if method == SPACY:
        if len(train[0].texts) > 1:
            raise SystemExit(f"{name} has pairs; spaCy is measured on single texts only; choose other --sets")
        train_rows, test_rows = ([(*example.texts, example.label) for example in part] for part in (train, test))
        result = train_spacy("textcat", train_rows, test_rows, folder)
        pairs = zip(result.pop("answers"), test, strict=True)
        return {"score": sum(label == example.label for label, example in pairs) / len(test), **result}
    if method not in PEERS:
        train_file = write_examples(train, folder / "train.jsonl")
        test_file = write_examples(test, folder / "test.jsonl")
        recipe, settings = RECIPES[method]
        return train_recipe(recipe, train_file, test_file, folder / "run", "accuracy", **settings)
    start = time.process_time()
    with threadpool_limits(1):
        model = PEERS[method]()
        model.fit([example.texts for example in train], [example.label for example in train])
        seconds, start = time.process_time() - start, time.process_time()
        predicted = model.predict(texts := [example.texts for example in test])
        test_seconds = time.process_time() - start
        answers = np.array([example.label for example in test])
    result = {"score": float((predicted == answers).mean()), "seconds": seconds, "test_seconds": test_seconds}
    if hasattr(model, "predict_proba"):
        result["calibration_error"] = calibration_error(model.predict_proba(texts), model.classes_, answers)
    if method != "fastText":  # for Model2Vec and en-vectors the size does not include the vectors
        result["bytes"] = len(pickle.dumps(model))
    return result


def calibration_error(probabilities: Any, labels: Sequence[str], answers: Any) -> float:
    """Return the expected calibration error of probabilities (N, K), in 15 bins like ensue."""
    tally = ClassificationTally([*map(str, labels)])
    for row, answer in zip(probabilities, answers, strict=True):
        tally.add([str(answer)], row, [str(labels[row.argmax()])])
    return tally.scores().calibration_error


if __name__ == "__main__":
    sets = {name: partial(read, name) for name in SETS}
    defaults = ["classify-linear", "with en-vectors", *(name for name in PEERS if not name.startswith("Model2Vec"))]
    measure_all(__doc__, sets, [*RECIPES, *PEERS, SPACY], measure, draws=5, tested=2_000, defaults=defaults)
