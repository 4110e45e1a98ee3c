"""The job of training a captioner."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby, islice
from typing import Any, ClassVar

import numpy as np
import torch

from ensue.extensions.frames.captioning.model import (
    Captioned,
    CaptionerParts,
    captions_of,
    check_caption,
    check_looked_at,
)
from ensue.extensions.frames.captioning.pipeline import CaptioningPipeline
from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.recipe import CaptioningRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, SeriesData
from ensue.extensions.frames.tasks.model import FramesSeen
from ensue.metrics.generation import GenerationScores, check_scorable
from ensue.models.encoder_decoder import TextModel
from ensue.models.modules import evaluating
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import DataSetJob
from ensue.tasks.sequence_to_sequence.decoding import search_of
from ensue.tasks.sequence_to_sequence.outputs import sample_lines, score_table
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, SequenceToSequence, usual_ratio
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizers import train_tokenizer


class CaptioningJob(DataSetJob[TextModel, LabeledSeries]):
    """Trains a captioner."""

    unit: ClassVar[str] = "tokens"
    recipe: CaptioningRecipe
    parts: CaptionerParts
    task: SequenceToSequence

    def __init__(self, recipe: CaptioningRecipe, run: RunDirectory | None = None) -> None:
        labels_of = partial(captions_of, separator=recipe.data.separator)
        data = SeriesData(recipe, run, labels_of=labels_of, check=partial(check_looked_at, recipe=recipe))
        super().__init__(recipe, data)
        self.parts = self._parts(data.seen(), data.rows if recipe.reads_images else 0) if run is None else run.parts
        target = self.parts.target
        check_scorable()
        search_of(recipe.search, target)  # what cannot be is said before anything is computed
        train = self._encoded(self.split.train)
        self.ratio = usual_ratio(train)
        self.task = SequenceToSequence(
            train, None if self.split.valid is None else self._encoded(self.split.valid), begin_id=target.begin_id,
            sizes=recipe.train, sampled=self._sampled,
        )  # fmt: skip

    def _parts(self, seen: FramesSeen, rows: int) -> CaptionerParts:
        captions = (caption for captions in self.split.train.labels for caption in captions)
        texts = (part for caption in captions for part in (" ", caption, "\n"))
        tokenizer = train_tokenizer(chunks=texts, **self.recipe.tokenizer.model_dump())
        return CaptionerParts(seen, TokenizerWithSpecials(tokenizer), rows)

    def _encoded(self, data: LabeledSeries) -> EncodedPairs:
        """Return each series with each of its captions."""
        rows = np.repeat(np.arange(len(data)), [len(captions) for captions in data.labels])
        sources = data.rows if len(rows) == len(data) else data.rows.select(rows)
        target, captions = self.parts.target, (caption for captions in data.labels for caption in captions)
        ids = (np.append(target.encode(caption), target.end_id) for caption in captions)
        pairs = EncodedPairs.of_targets(sources, ids)
        for row, length in zip(rows.tolist(), pairs.targets.lengths.tolist(), strict=True):
            check_caption(Series(str(row), data.rows[row]), length, self.recipe)
        return pairs

    def pipeline(self, model: TextModel) -> CaptioningPipeline:
        """Return the model at work."""
        return CaptioningPipeline(model, self.parts, recipe=self.recipe, ratio=self.ratio)

    def _sampled(self, model: TextModel) -> str:
        """Return the captions of some validation images, with the right ones, a line each."""
        if self.split.valid is None:
            return ""
        items = list(islice(_items(self.split.valid), self.recipe.train.samples))
        with evaluating(model):
            answers = list(self.pipeline(model).with_search(width=1).answers(items))
        return sample_lines((item.series.name, output.text, item.targets[0]) for item, output in answers)

    def prepare(self, model: TextModel) -> None:
        counts = np.bincount(self.task.train.targets.values, minlength=model.vocabulary_size)
        model.start_from_counts(torch.from_numpy(counts))

    def config(self) -> dict[str, Any]:
        return {"target_size": self.parts.target.vocabulary_size, "rows": self.parts.rows, "ratio": self.ratio}

    def test(self, model: TextModel) -> GenerationScores | None:
        return None if self.split.test is None else self.pipeline(model).score_pairs(list(_items(self.split.test)))

    @property
    def data(self) -> str:
        tokens = int(self.task.train.targets.lengths.sum())
        return f"{super().data}; captions of {tokens:,} tokens, {self.parts.target.vocabulary_size:,} symbols"

    def about(self) -> str:
        return f"of {'images' if self.recipe.reads_images else 'series of frames'}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores)


def _items(data: LabeledSeries) -> Iterator[Captioned]:
    """Yield the images with their captions. An image that comes several times in a row has several."""
    digests = data.digests
    for number, (_, group) in enumerate(groupby(range(len(data)), digests.__getitem__), 1):
        rows = list(group)
        captions = tuple(caption for row in rows for caption in data.labels[row])
        yield Captioned(Series(f"image {number}", data.rows[rows[0]]), captions)
