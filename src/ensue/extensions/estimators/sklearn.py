"""Estimators of scikit-learn that train classifiers and taggers.

Example: `cross_val_score(TextClassifier("classify-bag"), texts, labels)` cross-validates a text classifier.
"""

import json
import shutil
import weakref
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ensue.data.in_memory import column_names
from ensue.data.sentences.sentence import Sentence
from ensue.errors import EnsueError
from ensue.library import load, train
from ensue.recipe import read_recipe
from ensue.tasks import task_entry
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.labels import Labels

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise EnsueError("estimators need scikit-learn: pip install 'ensue[sklearn]'") from None

SETTING_PREFIX = "settings__"
"""The prefix of a parameter that is a key of the recipe, as in `settings__train.steps`."""


class Estimator(BaseEstimator):  # type: ignore[misc]
    """The base of `TextClassifier` and `Tagger`, which train a recipe in a run directory.

    The parameter `settings__KEY` sets a key of the recipe, as in the grid `{"settings__train.steps": [100, 300]}`. A
    pickle contains the files of the fitted run.

    Args:
        recipe: The name of a recipe or a TOML file; "": the default of the class.
        settings: Changes of the recipe.
        out: The run directory, which `fit` replaces; default: a temporary folder, which is deleted with the estimator.
        random_state: An int or a RandomState from which the seed is drawn; None: the seed of the recipe.
        device: The device, as for `ensue.train`.
        threads: CPU threads, as for `ensue.train`.
    """

    _kind: type[Pipeline]
    _recipe: str
    _remove: Callable[[], Any] = staticmethod(lambda: None)
    """The function that removes the temporary folder of the last call of `fit`."""
    model_: Any
    _archive: Path
    """A copy of the fitted run for pickles, since the run directory may be overwritten."""

    def __init__(
        self, recipe: str | Path = "", *, settings: Mapping[str, Any] | None = None, out: str | Path | None = None,
        random_state: Any = None, device: str = "auto", threads: int | None = 1,
    ) -> None:  # fmt: skip
        self.recipe, self.settings, self.out = recipe, settings, out
        self.random_state, self.device, self.threads = random_state, device, threads

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with `deep` also each key of `settings`."""
        params: dict[str, Any] = super().get_params(deep=deep)
        return params | {SETTING_PREFIX + key: value for key, value in (self.settings or {}).items() if deep}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `settings__KEY` sets a key of the recipe."""
        names = [name for name in params if name.startswith(SETTING_PREFIX)]
        keys = {name.removeprefix(SETTING_PREFIX): params.pop(name) for name in names}
        super().set_params(**params)
        if keys:
            self.settings = {**(self.settings or {}), **keys}
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_remove", None)
        archive = state.pop("_archive", None)
        if "model_" in state:
            state["model_"] = archive.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            folder = self._new_folder()
            self.run_, self._archive = folder / "run", folder / "run.zip"
            self._archive.write_bytes(state["model_"])
            with zipfile.ZipFile(self._archive) as archive:
                archive.extractall(self.run_)
            self.model_ = load(self.run_, kind=self._kind, device=self.device)

    def _train(self, examples: Iterable[dict[str, Any]]) -> None:
        settings = dict(self.settings or {})
        if self.random_state is not None:
            settings["train.seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        recipe = read_recipe(self.recipe or self._recipe, settings)
        if not issubclass(task_entry(recipe.task).pipeline_class, self._kind):
            raise ValueError(f"a {type(self).__name__} cannot have the task {recipe.task!r} of {self.recipe!r}")
        folder = self._new_folder()
        path, run = folder / "train.jsonl", Path(self.out or folder / "run")
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(example) + "\n" for example in examples)
        self.model_ = train(recipe, train=path, out=run, overwrite=True, device=self.device, threads=self.threads)
        self.run_, self._archive = run, folder / "run.zip"
        with zipfile.ZipFile(self._archive, "w") as archive:
            for path in sorted(run.rglob("*")):
                name = path.relative_to(run)
                if path.is_file() and name.parts[0] not in ("checkpoints", ".lock"):
                    archive.write(path, name.as_posix())

    def _new_folder(self) -> Path:
        self._remove()
        folder = mkdtemp(prefix="ensue-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)


class TextClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts, with the recipe `classify-bag` by default.

    X is a list of n strings or pairs of strings. y has a label for each text: a string, an integer or a boolean. After
    `fit`, `classes_` (K,) has the sorted labels, `run_` is the run directory, and `model_` is the pipeline of the run.
    """

    _kind, _recipe = ClassificationPipeline, "classify-bag"

    def fit(self, X: Iterable[Any], y: ArrayLike) -> Self:
        """Train the recipe. Raise ValueError if X and y do not match, and EnsueError for unusable data."""
        texts, labels = _check_texts(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(texts):
            raise ValueError(f"y: expected a label for each text, shape ({len(texts)},), found {labels.shape}")
        for index, label in enumerate(np.asarray(y, dtype=object).tolist()):  # as text, NaN would be a class
            if label is None or label != label:  # noqa: PLR0124 (NaN, NaT)
                raise ValueError(f"y[{index}]: expected a label, found {label}")
        self.classes_ = np.unique(labels)
        names = _name_classes(self.classes_)
        self._train(
            ({"text": text} if isinstance(text, str) else {"sentence1": text[0], "sentence2": text[1]})
            | {"label": names[index]}
            for text, index in zip(texts, np.searchsorted(self.classes_, labels), strict=True)
        )
        return self

    def predict_proba(self, X: Iterable[Any]) -> NDArray[np.float64]:
        """Return the probabilities (n, K) of `classes_`; 0 for a class that occurs only in validation texts."""
        check_is_fitted(self, "model_")
        names = _name_classes(self.classes_)
        rows = [[text.probabilities.get(name, 0.0) for name in names] for text in self.model_.predict(_check_texts(X))]
        probabilities = np.array(rows, dtype=np.float64).reshape(-1, len(names))
        totals = probabilities.sum(1, keepdims=True)
        np.divide(probabilities, totals, out=probabilities, where=totals > 0)
        return probabilities

    def predict(self, X: Iterable[Any]) -> NDArray[Any]:
        """Return the most probable class (n,) of each text."""
        best = self.predict_proba(X).argmax(1)  # raises NotFittedError before `classes_` is read
        return self.classes_[best]


class Tagger(Estimator):
    """A tagger of sentences, with the recipe `tag-lstm-crf` by default.

    X is a list of n sentences, which are lists of words. y has a list of labels for each sentence. After `fit`,
    `classes_` (K,) has the sorted labels, `run_` is the run directory, and `model_` is the pipeline of the run.
    """

    _kind, _recipe = LabelingPipeline, "tag-lstm-crf"

    def fit(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Self:
        """Train the recipe. Raise ValueError if X and y do not match, and EnsueError for unusable data."""
        _check_words(X, y)
        self.classes_ = np.unique(np.array([label for labels in y for label in labels], dtype=str))
        self._train({"words": [*words], "labels": [*labels]} for words, labels in zip(X, y, strict=True))
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the label of each word of each sentence."""
        check_is_fitted(self, "model_")
        return [[word.label for word in sentence] for sentence in self.model_.predict([[*words] for words in X])]

    def predict_proba(self, X: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """Return the probabilities (T, K) of `classes_` at each word of each sentence.

        A class that occurs only in validation sentences has probability 0.

        Raises:
            ValueError: The model has several columns of labels.
        """
        check_is_fitted(self, "model_")
        labels, model = self.model_.labels, self.model_
        if not isinstance(labels, Labels):
            raise ValueError("predict_proba needs a tagger with one label column")
        columns = {name: column for column, name in enumerate(self.classes_.tolist())}
        order = [columns[name] for name in labels.names]
        probabilities = [np.zeros((len(words), len(columns))) for words in X]
        rows = [row for row, words in enumerate(X) if len(words)]
        answers = model.label([Sentence(tuple(X[row])) for row in rows], confidence=True)
        for row, answer in zip(rows, answers, strict=True):
            marginals = labels.label_probabilities(answer.posterior.marginals).astype(np.float64)
            probabilities[row][:, order] = marginals / marginals.sum(1, keepdims=True)
        return probabilities

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]], sample_weight: None = None) -> float:
        """Return the share of words with a correct label."""
        _check_words(X, y)
        pairs = zip(chain.from_iterable(self.predict(X)), chain.from_iterable(y), strict=True)
        return float(np.mean([predicted == label for predicted, label in pairs]))


def _check_texts(X: Iterable[Any]) -> list[Any]:
    """Return the texts as a list of strings and pairs of strings. Raise ValueError for other values."""
    if isinstance(X, str):
        raise ValueError("X: expected a list of texts, found one string")
    if names := column_names(X):
        raise ValueError(f'X: expected a list of texts, found a table; select a column: X["{names[0]}"]')
    texts = [tuple(map(str, text)) if isinstance(text, list | tuple | np.ndarray) else text for text in X]
    for index, text in enumerate(texts):
        if not isinstance(text, str) and not (isinstance(text, tuple) and len(text) == 2):
            raise ValueError(f"X[{index}]: expected a string or a pair of strings, found {text!r:.60}")
    return texts


def _name_classes(classes: NDArray[Any]) -> list[str]:
    """Return the names of the classes in the run, without surrounding blanks. Raise ValueError for equal names."""
    names = [str(label).strip() for label in classes.tolist()]
    if len({*names}) < len(names):
        raise ValueError(f"two labels have the same name: {', '.join(names):.200}")
    return names


def _check_words(X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> None:
    if len(X) != len(y):
        raise ValueError(f"y: expected a list of labels for each of {len(X)} sentences, found {len(y)}")
    for index, (words, labels) in enumerate(zip(X, y, strict=True)):
        if isinstance(words, str) or len(words) != len(labels):
            raise ValueError(f"sentence {index}: expected a list of words, and a label for each")
        if invalid := [label for label in labels if not isinstance(label, str)]:
            raise ValueError(f"sentence {index}: labels must be strings; found {invalid[0]!r:.60}")
