"""Scores of nothing are not scores: both tasks say so alike, before a model is asked."""

from typing import Any

import numpy as np
import pytest

from ensue.errors import EnsueError
from ensue.tasks.classification.task import score_classifier
from ensue.tasks.labeling.task import LabeledTexts, Labeling
from ensue.text.labels import Classes

NOTHING: Any = None


@pytest.mark.parametrize("labels", [[], [[]]])
def test_no_labeled_word(labels: list[list[str]]) -> None:
    with pytest.raises(EnsueError, match=r"^there is nothing to score: no labeled word$"):
        Labeling.score(NOTHING, NOTHING, LabeledTexts(NOTHING, NOTHING, labels, NOTHING))


def test_no_labeled_text() -> None:
    with pytest.raises(EnsueError, match=r"^there is nothing to score: no labeled text$"):
        score_classifier(np.zeros((0, 2), np.float32), [], Classes(["a", "b"]))
