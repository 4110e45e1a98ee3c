"""The job of training a tagger: labels and their scheme, tags, scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ensue.metrics.labeling import LABELS_ON_CARD, SPANS_ON_CARD, LabelingScores
from ensue.models.tag_heads import ViterbiTagHead
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.labels_job import LabelsJob
from ensue.tasks.labeling.data import SentenceData
from ensue.tasks.labeling.task import Labeling, evaluate_tagger
from ensue.text.label_columns import LabelColumns, NestedLabels
from ensue.text.schemes import tags_of


class LabelingJob(LabelsJob[Tagger, Any]):
    """Trains a tagger."""

    data_class: ClassVar[Callable[..., Any]] = SentenceData
    """The data set, called with the recipe and the run that is resumed; a job of other inputs has another one."""
    data_set: Any

    counted_by: ClassVar[str] = "tokens"
    task: Labeling
    final: LabelingScores | None = None
    """The scores of the best weights on the validation data."""

    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None:
        data = self.data_class(recipe, run)
        super().__init__(recipe, data)
        self.parts = data.parts(data.labels()) if run is None else data.parts_of(run)
        valid = data.encoded(self.split.valid, self.parts) if self.split.valid else None
        train = data.encoded(self.split.train, self.parts)
        soft = data.soft_targets(self.parts.labels)
        self.task = Labeling(train, valid, self.parts.labels, recipe.train, key=self.split.key, soft=soft)

    def prepare(self, model: Tagger) -> None:
        def paths(number: int) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
            for tags, starts in self.task.tags.parts():
                yield tags.reshape(len(tags), -1)[:, number], starts

        for number, head in enumerate(model.head.parts):
            counts = [np.bincount(path, minlength=head.num_tags) for path, _ in paths(number)]
            head.start_from_counts(np.sum(counts, axis=0))
            if isinstance(head, ViterbiTagHead):
                head.count_bigrams(np.insert(path, starts[1:-1], head.num_tags) for path, starts in paths(number))

    def finish(self, run: RunDirectory, model: Tagger) -> None:
        """Score the validation data with the best weights, for the picture of confusions."""
        self.final = self.task.validate(model)

    def label_counts(self, part: Any) -> Counter[str]:
        if isinstance(self.parts.labels, LabelColumns):
            return Counter()
        counts = super().label_counts(part)
        if isinstance(self.parts.labels, NestedLabels):
            counts = Counter(tag for label in counts.elements() for tag in tags_of(label).values())
        return counts

    def about(self) -> str:
        labels = self.parts.labels
        return f"of {', '.join(labels.names)}" if isinstance(labels, LabelColumns) else super().about()

    @property
    def confused(self) -> tuple[list[str], list[list[int]]] | None:
        return None if self.final is None or not self.final.pairs else self.final.matrix()

    def test(self, model: Tagger) -> LabelingScores | None:
        if self.split.test is None:
            return None
        return evaluate_tagger(model, self.data_set.encoded(self.split.test, self.parts), self.parts.labels)

    @property
    def score_columns(self) -> Mapping[str, tuple[str, str]]:
        return SPANS_ON_CARD if self.parts.labels.has_spans else LABELS_ON_CARD
