"""Answers for frames as rows: each frame has its number, its time and its label; each series its label."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.errors import EnsueError
from ensue.extensions.annotation_formats.writers import write_predictions
from ensue.extensions.frames.labeling import TaggedSeries
from extensions.frames.small_frames import frame_classifier, frame_predictor, frame_tagger, frames


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.npz"
    np.savez(path, frames=np.concatenate([frames(4), frames(3, seed=1)]), lengths=[4, 3], rate=10.0)
    return str(path)


def test_labels_of_frames_are_rows(two: str, tmp_path: Path) -> None:
    tagger = frame_tagger()
    answers = tagger.predict([frames(4), frames(3, seed=1)], confidence=True)
    rows = [json.loads(line) for line in write_predictions(tagger, two, to="jsonl")]
    assert [row["label"] for row in rows] == [label for answer in answers for label in answer.labels]
    assert [row["probability"] for row in rows] == pytest.approx(
        [share for answer in answers for share in answer.probabilities], abs=1e-5
    )
    assert [row["frame"] for row in rows] == [0, 1, 2, 3, 0, 1, 2]
    assert [row["time"] for row in rows] == pytest.approx([0, 0.1, 0.2, 0.3, 0, 0.1, 0.2])
    out = tmp_path / "a.csv"
    assert not [*write_predictions(tagger, two, out, to="csv")]
    with out.open() as file:
        assert [*csv.DictReader(file)] == [{name: str(value) for name, value in row.items()} for row in rows]


def test_without_a_rate_frames_have_numbers_but_no_times() -> None:
    rows = TaggedSeries("a", ("up", "down")).table_rows()
    assert rows == [{"series": "a", "frame": frame, "label": label} for frame, label in enumerate(("up", "down"))]


@pytest.mark.parametrize("model", [frame_classifier(), frame_predictor(width=3)])
def test_answers_for_a_series_are_a_row(model: Any, two: str) -> None:
    header, *rows = write_predictions(model, two, to="csv")
    assert header in ("series,label,probability\n", "series,mean,deviation\n")
    assert [row.partition(",")[0] for row in rows] == ["two.npz[0]", "two.npz[1]"]
    with pytest.raises(EnsueError, match="csv or jsonl also for models of frames; other models have json"):
        write_predictions(model, two, to="conll")
