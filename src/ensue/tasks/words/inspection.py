"""Shared by the pages of taggers and classifiers: the words as the model reads them, and the facts at the top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ensue.errors import EnsueError
from ensue.inspection.features import ReadWords
from ensue.models.modules import device_of
from ensue.models.subword_encoder import Subwords
from ensue.tasks.words.pipeline import WordPipeline

LONGEST = 10_000
"""The most words of a text for a page."""


def read_words(
    pipeline: WordPipeline,
    texts: Sequence[Sequence[str]],
    columns: dict[str, tuple[str, ...]] | None = None,
) -> list[ReadWords]:
    """The texts as the model reads them."""
    for words in texts:
        if not words:
            raise EnsueError("there is nothing to look into: the text has no words")
        pipeline.recipe.check_length(len(words))
        if len(words) > LONGEST:
            raise EnsueError(f"the text has {len(words):,} words; up to {LONGEST:,} can be looked into")
    features, lexicon = pipeline.reader.memory.read([word for words in texts for word in words])
    device = device_of(pipeline.model)
    norms = _norms(pipeline, texts)
    found = []
    for side, words in enumerate(texts):
        computed = zip(pipeline.contextual.origins, pipeline.contextual.computed([words]), strict=True)
        layers = {run.path: part.batch(np.zeros(1, np.int64), device) for run, part in computed}
        found.append(
            ReadWords(
                features,
                lexicon,
                words,
                columns,
                contextual=layers,
                subwords=_variants(pipeline, texts, side),
                norms=norms[side],
                device=device,
            )
        )
    return found


@torch.inference_mode()
def _norms(pipeline: WordPipeline, texts: Sequence[Sequence[str]]) -> list[list[float]]:
    """For each text the lengths of the vectors of its words behind layers that read subwords."""
    if pipeline.subwords is None:
        return [[] for _ in texts]
    subwords = pipeline.subwords.variants([texts], device_of(pipeline.model))
    lengths = pipeline.model.layers(subwords)[0, subwords.first :].norm(dim=-1).tolist()
    starts = [sum(map(len, texts[:side])) for side in range(len(texts))]
    return [lengths[start : start + len(text)] for start, text in zip(starts, texts, strict=True)]


def _variants(
    pipeline: WordPipeline, texts: Sequence[Sequence[str]], side: int
) -> Callable[[Sequence[Sequence[str | None]]], Subwords] | None:
    """Reads variants of one text of a pair beside the other, or of the only text."""
    reader, device = pipeline.subwords, device_of(pipeline.model)
    if reader is None:
        return None
    before, behind = texts[:side], texts[side + 1 :]
    return lambda variants: reader.variants([[*before, text, *behind] for text in variants], device)


def facts_of(pipeline: WordPipeline, head: str, words: str) -> dict[str, str]:
    """The facts about the model at the top of the page."""
    run = {} if pipeline.run is None else {"run": Path(pipeline.run).name}
    parameters = f"{pipeline.num_parameters:,}"
    return {**run, "encoder": pipeline.recipe.describe(), "head": head, "parameters": parameters, "words": words}
