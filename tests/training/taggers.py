"""Tagged sentences, and functions to load taggers and predict."""

from pathlib import Path
from typing import Any

import ensue
from ensue.tasks.labeling.pipeline import LabelingPipeline
from training.tiny_texts import Tagged, sentences

TAGGED = sentences(120)


def load(run: Path, **options: Any) -> LabelingPipeline:
    return ensue.load(run, device="cpu", **options, kind=LabelingPipeline)


def predicted(run: Path, tagged: list[Tagged] = TAGGED) -> list[list[str]]:
    return [sentence.labels for sentence in load(run).predict([s.words for s in tagged])]
