"""The training of a tagger."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ensue.errors import RecipeError
from ensue.metrics.labeling import LABELS_ON_CARD, SPANS_ON_CARD
from ensue.models.tag_heads import ViterbiTagHead
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import LabelsJob
from ensue.tasks.labeling.data import SentenceData
from ensue.tasks.labeling.task import Labeling
from ensue.text.label_columns import LabelColumns, NestedLabels
from ensue.text.schemes import tags_of

MAX_SOLVED_WORDS = 100_000
MAX_FOLD_WORDS = {5: 10_000, 3: MAX_SOLVED_WORDS}
"""The maximum number of training words of a linear tagger for each number of folds: more folds take more time."""


class LabelingJob(LabelsJob[Tagger]):
    """The job of a tagger."""

    data_class: ClassVar[Callable[..., Any]] = SentenceData
    support_name: ClassVar[str] = "tokens"
    finishing_validations: ClassVar[int] = 1
    task: Labeling

    def __init__(self, recipe: Any, run: RunDirectory | None = None) -> None:
        super().__init__(recipe, data := self.data_class(recipe, run))
        self.parts = data.parts(data.labels()) if run is None else data.resumed_parts(run)
        valid = self.encode(self.split.valid) if self.split.valid else None
        train = self.encode(self.split.train)
        soft = data.soft_targets(self.parts.labels)
        folds = groups = None
        num_words = len(self.split.train.texts.words) if recipe.is_gradient_free else 0
        if num_words > MAX_SOLVED_WORDS:
            problem = f"is for at most {MAX_SOLVED_WORDS:,} words, found {num_words:,}"
            raise RecipeError(f'head.solver = "lbfgs" {problem}; use the recipe tag-lstm-crf')
        if recipe.is_gradient_free:
            folds = self.folds(next(number for number, limit in MAX_FOLD_WORDS.items() if num_words <= limit))
            groups = self.split.train.group_keys
        options: dict[str, Any] = {"key": self.split.key, "soft": soft, "folds": folds, "groups": groups}
        self.task = Labeling(train, valid, self.parts.labels, recipe.train, **options)

    def prepare(self, model: Tagger) -> None:
        def chunks(column: int) -> Iterator[tuple[NDArray[np.integer], NDArray[np.int64]]]:
            for tags, starts in self.task.tags.chunks():
                yield tags.reshape(len(tags), -1)[:, column], starts

        for column, head in enumerate(model.head.parts):
            counts = [np.bincount(tags, minlength=head.num_tags) for tags, _ in chunks(column)]
            head.start_from_counts(np.sum(counts, axis=0))
            if isinstance(head, ViterbiTagHead):
                head.count_bigrams(np.insert(tags, starts[1:-1], head.num_tags) for tags, starts in chunks(column))

    def finish(self, run: RunDirectory, model: Tagger) -> None:
        """Compute the scores of the best weights on the validation data, for the confusion matrix."""
        self.best_scores = self.task.validate(model)

    def label_counts(self, data: Any) -> Counter[str]:
        if isinstance(self.parts.labels, LabelColumns):
            return Counter()
        counts = super().label_counts(data)
        if isinstance(self.parts.labels, NestedLabels):
            counts = Counter(tag for label in counts.elements() for tag in tags_of(label).values())
        return counts

    def about(self) -> str:
        labels = self.parts.labels
        return f"of {', '.join(labels.names)}" if isinstance(labels, LabelColumns) else super().about()

    @property
    def confusion(self) -> tuple[list[str], list[list[int]]] | None:
        return None if self.best_scores is None or not self.best_scores.pairs else self.best_scores.matrix()

    @property
    def score_columns(self) -> Mapping[str, tuple[str, str]]:
        return SPANS_ON_CARD if self.parts.labels.has_spans else LABELS_ON_CARD
