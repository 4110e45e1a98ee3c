"""What tests of classifiers share: texts of three topics, the trained model, and its scores compared."""

from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.tasks.classification.pipeline import ClassificationPipeline
from training.tiny_texts import documents

TEXTS = documents(120)


def load(run: Path, **options: Any) -> ClassificationPipeline:
    pipeline = ensue.load(run, device="cpu", **options)
    assert isinstance(pipeline, ClassificationPipeline)
    return pipeline


def assert_same_scores(found: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """All counts; the calibration error sums probabilities, which are rounded as their batch is."""
    assert expected is not None
    assert found.pop("calibration_error") == pytest.approx(expected["calibration_error"], abs=1e-6)
    assert found == {name: value for name, value in expected.items() if name != "calibration_error"}
