"""Data without labels have no scores: both tasks refuse them before the model runs."""

from typing import Any

import numpy as np
import pytest

from ensue.errors import EnsueError
from ensue.tasks import task_entries
from ensue.tasks.classification.task import score_classifier
from ensue.tasks.labeling.task import LabeledTexts, Labeling
from ensue.text.labels import Classes

NOTHING: Any = None


@pytest.mark.parametrize("labels", [[], [[]]])
def test_an_evaluation_without_a_labeled_word_is_refused(labels: list[list[str]]) -> None:
    with pytest.raises(EnsueError, match=r"^there is nothing to score: no labeled word$"):
        Labeling.score(NOTHING, NOTHING, LabeledTexts(NOTHING, NOTHING, labels, NOTHING))


def test_an_evaluation_of_an_empty_list_is_refused_by_every_task() -> None:
    for entry in task_entries():
        pipeline = entry.pipeline_class.__new__(entry.pipeline_class)
        for empty in ([], ()):
            with pytest.raises(EnsueError, match=r"^the data: no rows$"):
                pipeline.evaluate(empty)


def test_an_evaluation_without_a_labeled_text_is_refused() -> None:
    with pytest.raises(EnsueError, match=r"^there is nothing to score: no labeled text$"):
        score_classifier(np.zeros((0, 2), np.float32), [], Classes(["a", "b"]))
