"""The job of training a classifier: reads and checks labeled texts, makes task and model, and writes its part of the
card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.documents import DocumentSource
from ensue.data.sources import TextSource
from ensue.data.words import Texts
from ensue.errors import DataError
from ensue.metrics.classification import ClassificationScores
from ensue.models.build import build_lexicon
from ensue.models.classifier import Classifier
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.confusion_picture import CONFUSION, draw_confusion
from ensue.tasks.classification.model import ClassifierParts
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import (
    Classification,
    ClassifiedTexts,
    classify_texts,
    score_classifier,
    weigh_ngrams,
    with_best_threshold,
)
from ensue.tasks.classification.texts import check_document, describe_reading, document_source, shortened
from ensue.tasks.job import Job
from ensue.tasks.words.encoded_texts import EncodedTexts
from ensue.tasks.words.label_table import label_table
from ensue.tasks.words.length import check_length
from ensue.tasks.words.pretrained import d_vectors, pretrained_vectors, with_vectors
from ensue.text.classes import Classes
from ensue.text.tokens import tokens


@dataclass
class Documents:
    """The texts of a file in memory, as words, with their labels. A document has one text, or the two of a pair."""

    texts: tuple[Texts, ...]
    labels: list[tuple[str, ...]] = field(default_factory=list)
    cut: list[bool] = field(default_factory=list)
    """For each text, whether it was cut."""
    empty: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)


class ClassificationJob(Job[Classifier]):
    """Trains a classifier."""

    unit: ClassVar[str] = "texts"
    recipe: ClassificationRecipe
    parts: ClassifierParts
    task: Classification
    final: ClassificationScores | None = None
    """The scores of the best weights on the validation data."""

    def __init__(self, recipe: ClassificationRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file, or a folder with a folder for each class")
        source = document_source(data, data.train)
        self.layout = source.layout
        self.fingerprint = TextSource(data.train, encoding=data.encoding).fingerprint()
        whole = self._read(source, is_train=True)
        self.multiple = any(len(labels) != 1 for labels in whole.labels)
        self.train, self.valid, self.split = self._split(whole)
        self.test_data = self._read(self._later(data.test)) if data.test else None
        self.parts = self._parts() if run is None else with_vectors(run.parts, run, recipe.features.vectors)
        self.task = Classification(
            self._encoded(self.train),
            self._encoded(self.valid) if self.valid else None,
            self.parts.labels,
            balanced=recipe.head.class_weights == "balanced",
            batch_size=recipe.train.batch_size,
            batch_tokens=recipe.train.batch_tokens,
            seed=recipe.train.seed,
        )

    def _later(self, location: str) -> DocumentSource:
        """Texts with the format and the columns of the training data."""
        return document_source(self.recipe.data, location, like=self.layout)

    def _read(self, source: DocumentSource, *, is_train: bool = False) -> Documents:
        data = self.recipe.data
        found = Documents(texts=tuple(Texts() for _ in range(self.num_texts)))
        for document in source:
            check_document(document, self.num_texts, multiple=is_train or self.multiple)
            words = [[token.text for token in tokens(text, data.splitter)] for text in document.texts]
            kept = [shortened(part, data) for part in words]
            check_length(max(map(len, kept)), self.recipe, document.path, document.line)
            for texts, part in zip(found.texts, kept, strict=True):
                texts.append(part)
            found.labels.append(document.labels)
            found.cut.append(kept != words)
            found.empty.append(not any(words))
        if not len(found):
            raise DataError("no text in it", source.location)
        return found

    @property
    def num_texts(self) -> int:
        """The number of texts in a document: 1, or 2 for pairs."""
        return 1 if self.layout.joined else max(1, len(self.layout.texts))

    def _split(self, whole: Documents) -> tuple[Documents, Documents | None, str]:
        """Training and validation texts. The latter are drawn at random, since files are often sorted by label; they
        are the same for every seed.
        """
        data = self.recipe.data
        if data.valid:
            return whole, self._read(self._later(data.valid)), data.valid
        order = np.random.default_rng(0).permutation(len(whole))
        kept = max(1, round(len(whole) * (1 - data.valid_fraction)))
        if not data.valid_fraction or kept == len(whole):
            return whole, None, "none"
        split = f"{data.valid_fraction:.0%} of {data.train}, drawn at random"
        return selected(whole, np.sort(order[:kept])), selected(whole, np.sort(order[kept:])), split

    def _labels(self) -> Classes:
        counts = Counter(label for labels in self.train.labels for label in labels)
        if len(counts) < 2:
            found = f'all {len(self.train):,} texts have the label "{next(iter(counts))}"' if counts else "no label"
            raise DataError(f"nothing to learn: {found} ({self.layout})", self.recipe.data.train)
        if all(self.train.empty):
            raise DataError(f"nothing to learn: no text has a word ({self.layout})", self.recipe.data.train)
        return Classes(sorted(counts), multiple=self.multiple)

    def _parts(self) -> ClassifierParts:
        labels, vectors = self._labels(), self.recipe.features.vectors
        words, pretrained = pretrained_vectors(vectors, self._forms()) if vectors else (None, None)
        counts = sum((Counter(texts.words.counts()) for texts in self.train.texts), Counter[str]())
        lexicon = build_lexicon(self.recipe.features, counts, vectors=words)
        return ClassifierParts(lexicon, pretrained, labels, self.num_texts == 2)

    @property
    def labels(self) -> Classes:
        """The labels of the training data."""
        return self.parts.labels

    def _forms(self) -> set[str]:
        """All word forms of the data."""
        parts = (self.train, self.valid, self.test_data)
        return {form for part in parts if part is not None for texts in part.texts for form in texts.words.values}

    def _encoded(self, documents: Documents) -> ClassifiedTexts:
        return ClassifiedTexts(
            tuple(EncodedTexts(self.parts.lexicon, texts) for texts in documents.texts), documents.labels
        )

    @property
    def data(self) -> str:
        words = sum(len(texts.words) for texts in self.train.texts)
        valid = f"{len(self.valid):,} for validation" if self.valid else "none for validation"
        kind = "labels, several of them a text" if self.labels.multiple else "labels"
        return f"{len(self.train):,} texts of {words:,} words, {valid}; {len(self.labels)} {kind} ({self.layout})"

    @property
    def notes(self) -> list[str]:
        notes = []
        counts = Counter(label for labels in self.train.labels for label in labels)
        rare = sorted(label for label, count in counts.items() if count == 1)
        if rare:
            notes.append(f"only one text to learn the label from: {', '.join(rare)}")
        if any(self.train.empty):
            notes.append(f"{sum(self.train.empty):,} texts are empty")
        if self.valid is None:
            notes.append("no validation data: the last weights are kept, and no score is measured")
        for what, part in (("validation", self.valid), ("test", self.test_data)):
            found = {label for labels in part.labels for label in labels} if part else set()
            missing = sorted(found - set(self.labels.names))
            if missing:
                notes.append(f"training has no {', '.join(missing)}: wrong wherever the {what} data have it")
        return notes

    def protocol(self, model: Classifier | None = None) -> str:
        """How long texts are read, in one line."""
        cut = sum(self.train.cut)
        return describe_reading(self.recipe.data, f"{cut:,} of {len(self.train):,} texts are longer:" if cut else "")

    def prepare(self, model: Classifier) -> None:
        shares = self.labels.shares(self.train.labels)
        if model.bag is not None:
            matrix = self.labels.matrix(self.train.labels)
            weigh_ngrams(model.bag, self.recipe.head.ngram_weights, self.task.train, matrix)
        if self.recipe.head.class_weights == "none":
            model.start_from_shares(torch.from_numpy(shares).float())

    def config(self) -> dict[str, Any]:
        return {
            "layout": self.layout.to_json(),
            "pair": self.num_texts == 2,
            "splitter": self.recipe.data.splitter,
            "d_vectors": d_vectors(self.parts.pretrained),
        }

    def finish(self, run: RunDirectory, model: Classifier) -> None:
        """Sets the threshold for several labels by the validation data, and scores these with it."""
        valid = self.task.valid
        if valid is None:
            return
        probabilities = classify_texts(model, valid.texts)
        self.parts = replace(self.parts, labels=with_best_threshold(self.labels, valid.labels, probabilities))
        run.write({"labels.json": self.labels.to_json()})
        self.final = score_classifier(probabilities, valid.labels, self.labels)

    def pictures(self) -> dict[str, Callable[[Path], None]]:
        """The confusion matrix of the validation data."""
        final = self.final
        if final is None or final.confusion is None:
            return {}
        labels, counts = final.labels, final.confusion
        return {CONFUSION: lambda path: draw_confusion(labels, counts, path, title=path.parent.name)}

    def test(self, model: Classifier) -> ClassificationScores | None:
        if self.test_data is None:
            return None
        encoded = self._encoded(self.test_data)
        return score_classifier(classify_texts(model, encoded.texts), encoded.labels, self.labels)

    def about(self) -> str:
        names = self.labels.names
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return f"of {len(names)} labels ({shown})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        lines = [
            "| data | accuracy | macro F1 | weighted F1 | calibration error | texts |",
            "|---|---|---|---|---|---|",
        ]
        for name, found in scores.items():
            numbers = (
                f"{100 * found[key]:.2f}" for key in ("accuracy", "macro_f1", "weighted_f1", "calibration_error")
            )
            lines.append(f"| {name} | {' | '.join(numbers)} | {found['examples']:,} |")
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}` ({self.layout}), {len(self.train):,} texts; {self.protocol()}"]
        lines.append(f"- validation: {self.split}" + (f", {len(self.valid):,} texts" if self.valid else ""))
        if self.test_data:
            lines.append(f"- test: `{data.test}`, {len(self.test_data):,} texts")
        return lines

    def commands(self, path: str) -> list[str]:
        plain = [] if self.num_texts == 2 else [f'echo "a text of yours" | ensue predict {path}']
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]

    def python(self) -> list[str]:
        text = '("a text", "another text")' if self.num_texts == 2 else '"a text of yours"'
        return [f"print(model.predict([{text}]))"]


def selected(documents: Documents, rows: NDArray[np.int64]) -> Documents:
    """The documents in these rows."""
    part = Documents(
        texts=tuple(Texts() for _ in documents.texts),
        labels=[documents.labels[row] for row in rows],
        cut=[documents.cut[row] for row in rows],
        empty=[documents.empty[row] for row in rows],
    )
    for mine, whole in zip(part.texts, documents.texts, strict=True):
        starts, words = whole.starts, whole.words
        for row in rows:
            mine.append([words.values[id] for id in words.ids[starts[row] : starts[row + 1]]])
    return part
