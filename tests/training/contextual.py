"""Sentences as texts, and recipes whose features are layers of another run."""

from pathlib import Path
from typing import Any

import torch

from ensue.data.compact_texts import Texts
from ensue.runs.directory import RunDirectory, origins_for
from ensue.tasks.words.pipeline import ContextualFeatures
from ensue.tasks.words.recipe import WordsRecipe

CPU = torch.device("cpu")


WORDS = [["the", "old", "bird"], [], ["\x00", "house", ""], ["the", "old", "bird"], ["Anna", "sees"] * 20]


def ignore_progress(what: str, share: float) -> None:
    pass


def features(recipe: WordsRecipe, run: Path | None = None) -> ContextualFeatures:
    origins = origins_for(recipe.origins, None if run is None else RunDirectory(run))
    return ContextualFeatures.of(recipe.features, origins, CPU)


def features_of(origin: Path, **changes: Any) -> dict[str, Any]:
    return {"contextual": [str(origin)], "dropout_words": 0.0} | {f"contextual_{k}": v for k, v in changes.items()}


def texts_of(sentences: list[list[str]]) -> Texts:
    texts = Texts()
    for words in sentences:
        texts.append(words)
    return texts
