"""Labeled texts whose labels may be doubted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ensue.errors import DataError
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.texts import document_source
from ensue.tasks.contract.examples import Doubt, Examples, edit_between
from ensue.tasks.contract.pipeline import Pipeline


class ClassifiedExamples(Examples):
    """The labeled texts of a recipe's training data."""

    unit: ClassVar[str] = "texts"

    def __init__(self, recipe: ClassificationRecipe) -> None:
        self.source = document_source(recipe.data, recipe.data.train)
        self.documents = list(self.source)
        if not self.documents:
            raise DataError("no text in it", recipe.data.train)
        self.num_labels = len(self.documents)
        self.pieces = [self.source.write(document, document.labels) for document in self.documents]
        self.pieces.append(self.source.rest)
        self.names = ["text"] if len(self.documents[0].texts) == 1 else ["text1", "text2"]

    @property
    def keys(self) -> Sequence[tuple[str, ...]]:
        return [document.texts for document in self.documents]

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data.texts": self.names, "data.labels": "label", "data.separator": "", "data.joined": False}

    def row(self, number: int) -> dict[str, Any]:
        document = self.documents[number]
        labels = document.labels
        texts = dict(zip(self.names, document.texts, strict=False))
        return {**texts, "label": labels[0] if len(labels) == 1 else list(labels)}

    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        assert isinstance(pipeline, ClassificationPipeline)
        labels = pipeline.labels
        answers = pipeline.classify(self.documents[number] for number in numbers)
        for number, answer in zip(numbers, answers, strict=True):
            document, proposed, shares, _ = answer
            if set(proposed) == set(document.labels) or not proposed:
                continue
            given = labels.matrix([document.labels])[0]
            known = set(document.labels) <= set(labels.names)
            found = abs(shares - ~given).min() if labels.multiple else shares[given].sum()
            new = self.source.write(document, proposed)
            text = "\n".join(document.texts)
            yield number, Doubt(
                document.path, document.line, text, 0, len(text), document.labels, proposed,
                float(found) if known else 0.0, edit_between(self.pieces[number], new),
            )  # fmt: skip
