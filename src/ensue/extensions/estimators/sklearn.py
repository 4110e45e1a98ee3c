"""Classifiers and taggers as estimators of scikit-learn, for its pipelines, searches and cross-validation.

from ensue.sklearn import TextClassifier
scores = cross_val_score(TextClassifier("classify-bag"), texts, labels)
"""

from __future__ import annotations

import json
import shutil
import weakref
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

SETTING = "settings__"
"""The start of a parameter that is one key of the recipe, as in `settings__train.steps`."""


class Estimator(BaseEstimator):  # type: ignore[misc]
    """A recipe that is trained in a run directory: the base of `TextClassifier` and `Tagger`.

    `recipe` is a name or a TOML file ("" is the class's own), and `settings` change it. A search over one key of the
    recipe names it `settings__KEY`, as in `{"settings__train.steps": [100, 300]}`. The run is in the directory `out`,
    which is replaced, or in a temporary one that goes with the estimator. `random_state` is the seed; None leaves the
    recipe's. `device` and `threads` are as for `ensue.train`. A pickle holds the files of the run that `fit` made.
    """

    _kind: type[Pipeline]
    _recipe: str
    _remove: Callable[[], Any] = staticmethod(lambda: None)
    """Removes the folder of the last fit."""
    model_: Any
    _archive: Path
    """The files of the run as `fit` left them; a later run in the same directory does not change a pickle."""

    def __init__(
        self,
        recipe: str | Path = "",
        *,
        settings: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        random_state: Any = None,
        device: str = "auto",
        threads: int | None = 1,
    ) -> None:
        self.recipe, self.settings, self.out = recipe, settings, out
        self.random_state, self.device, self.threads = random_state, device, threads

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep` each key of `settings` by itself, too."""
        found: dict[str, Any] = super().get_params(deep=deep)
        return found | {SETTING + key: value for key, value in (self.settings or {}).items() if deep}

    def set_params(self, **params: Any) -> Self:
        """Sets parameters; `settings__KEY` is one key of the recipe."""
        keys = {name.removeprefix(SETTING): params.pop(name) for name in list(params) if name.startswith(SETTING)}
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
            folder = self._own_folder()
            self.run_, self._archive = folder / "run", folder / "run.zip"
            self._archive.write_bytes(state["model_"])
            with zipfile.ZipFile(self._archive) as archive:
                archive.extractall(self.run_)
            self.model_ = load(self.run_, kind=self._kind, device=self.device)

    def _train(self, examples: Iterable[dict[str, Any]]) -> None:
        """Trains the recipe on examples, which are objects of JSON."""
        settings = dict(self.settings or {})
        if self.random_state is not None:
            settings["train.seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        recipe = read_recipe(self.recipe or self._recipe, settings)
        if not issubclass(task_entry(recipe.task).pipeline_class, self._kind):
            raise ValueError(f"a {type(self).__name__} does not learn {recipe.task!r}, the task of {self.recipe!r}")
        folder = self._own_folder()
        path, run = folder / "train.jsonl", Path(self.out or folder / "run")
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(example) + "\n" for example in examples)
        self.model_ = train(recipe, train=path, out=run, overwrite=True, device=self.device, threads=self.threads)
        self.run_, self._archive = run, folder / "run.zip"
        _pack(run, self._archive)

    def _own_folder(self) -> Path:
        """A folder that goes with the estimator, or with its next fit."""
        self._remove()
        folder = mkdtemp(prefix="ensue-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)


class TextClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts.

    X holds n strings, or n pairs of strings, and y the label of each: strings, integers or booleans. The recipe is
    `classify-bag` by default. After `fit`, `classes_` (K,) are the labels in order, `run_` is the run directory, and
    `model_` its pipeline.
    """

    _kind, _recipe = ClassificationPipeline, "classify-bag"

    def fit(self, X: Iterable[Any], y: ArrayLike) -> Self:
        """Trains the recipe. Raises ValueError if X and y do not match, and EnsueError for unusable data."""
        texts, labels = _texts(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(texts):
            raise ValueError(f"y has one label for each text: expected ({len(texts)},), found {labels.shape}")
        self.classes_ = np.unique(labels)
        names = _names(self.classes_)
        self._train(
            {**_example(text), "label": names[place]}
            for text, place in zip(texts, np.searchsorted(self.classes_, labels), strict=True)
        )
        return self

    def predict_proba(self, X: Iterable[Any]) -> NDArray[np.float64]:
        """The probabilities (n, K) of `classes_`; 0 for a class that only the validation texts have."""
        check_is_fitted(self, "model_")
        names = _names(self.classes_)
        found = [[text.probabilities.get(name, 0.0) for name in names] for text in self.model_.predict(_texts(X))]
        return np.array(found, dtype=np.float64).reshape(-1, len(names))

    def predict(self, X: Iterable[Any]) -> NDArray[Any]:
        """The most probable class (n,) of each text."""
        shares = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[shares.argmax(1)]
        return found


class Tagger(Estimator):
    """A tagger of sentences. X holds n sentences, each a list of words, and y the labels of their words.

    The recipe is `tag-lstm-crf` by default. After `fit`, `classes_` (K,) are the labels in order, `run_` is the run
    directory, and `model_` its pipeline.
    """

    _kind, _recipe = LabelingPipeline, "tag-lstm-crf"

    def fit(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Self:
        """Trains the recipe. Raises ValueError if X and y do not match, and EnsueError for unusable data."""
        _check_words(X, y)
        self.classes_ = np.unique(np.array([label for labels in y for label in labels], dtype=str))
        self._train({"words": [*words], "labels": [*labels]} for words, labels in zip(X, y, strict=True))
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        """The label of each word of each sentence."""
        check_is_fitted(self, "model_")
        return [[word.label for word in sentence] for sentence in self.model_.predict([[*words] for words in X])]

    def predict_proba(self, X: Sequence[Sequence[str]]) -> list[NDArray[np.float64]]:
        """The probabilities (T, K) of the classes at each word of each sentence, in the order of `classes_`. A class
        that only the validation sentences have gets 0. Raises ValueError for a model of several columns.
        """
        check_is_fitted(self, "model_")
        labels, model = self.model_.labels, self.model_
        if not isinstance(labels, Labels):
            raise ValueError("predict_proba is for a tagger of one column")
        places = {name: place for place, name in enumerate(self.classes_.tolist())}
        order = [places[name] for name in labels.names]
        found = [np.zeros((len(words), len(places))) for words in X]
        whole = [place for place, words in enumerate(X) if len(words)]
        answers = model.label([Sentence(tuple(X[place])) for place in whole], confidence=True)
        for place, answer in zip(whole, answers, strict=True):
            found[place][:, order] = labels.shares(answer.posterior.marginals)
        return found

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]], sample_weight: None = None) -> float:
        """The share of words that get their label."""
        _check_words(X, y)
        found, expected = ([label for labels in column for label in labels] for column in (self.predict(X), y))
        return float(np.mean([one == other for one, other in zip(found, expected, strict=True)]))


def _texts(X: Iterable[Any]) -> list[Any]:
    """Texts or pairs as a list. Raises ValueError for anything else."""
    if isinstance(X, str):
        raise ValueError("X is a list of texts; found one string")
    texts = [tuple(map(str, text)) if isinstance(text, list | tuple | np.ndarray) else text for text in X]
    for place, text in enumerate(texts):
        if not isinstance(text, str) and not (isinstance(text, tuple) and len(text) == 2):
            raise ValueError(f"X holds strings, or pairs of strings; number {place} is {text!r:.60}")
    return texts


def _example(text: str | tuple[str, str]) -> dict[str, str]:
    return {"text": text} if isinstance(text, str) else {"sentence1": text[0], "sentence2": text[1]}


def _names(classes: NDArray[Any]) -> list[str]:
    """The names of classes in the run, without blanks around them. Raises ValueError if two have the same."""
    names = [str(label).strip() for label in classes.tolist()]
    if len({*names}) < len(names):
        raise ValueError(f"two labels are written alike: {', '.join(names):.200}")
    return names


def _check_words(X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> None:
    if len(X) != len(y):
        raise ValueError(f"y has a list of labels for each sentence: expected {len(X)}, found {len(y)}")
    for place, (words, labels) in enumerate(zip(X, y, strict=True)):
        if isinstance(words, str) or len(words) != len(labels):
            raise ValueError(f"sentence {place}: expected a list of words, and a label for each")
        if wrong := [label for label in labels if not isinstance(label, str)]:
            raise ValueError(f"sentence {place}: labels are strings; found {wrong[0]!r:.60}")


def _pack(run: Path, packed: Path) -> None:
    """Write the files of a run, without its checkpoints, into an archive."""
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(run.rglob("*")):
            name = path.relative_to(run)
            if path.is_file() and name.parts[0] not in ("checkpoints", ".lock"):
                archive.write(path, name.as_posix())
