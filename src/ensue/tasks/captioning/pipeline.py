"""A captioner in use: predicts, scores and evaluates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ensue.data.compact_texts import Ragged
from ensue.data.files import Location
from ensue.data.frames.series import Series
from ensue.data.frames.stored import FrameRows
from ensue.errors import EnsueError
from ensue.inspection.notebook import Answers
from ensue.inspection.page import Inspection
from ensue.metrics.generation import GenerationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.runs.directory import RunDirectory
from ensue.tasks.captioning.model import Captioned, CaptionerParts, captioned, check_caption, check_looked_at
from ensue.tasks.captioning.page import inspect_caption
from ensue.tasks.captioning.recipe import CaptioningRecipe
from ensue.tasks.contract.chunks import WHOLE, Shard
from ensue.tasks.frames.pipeline import FramesPipeline
from ensue.tasks.sequence_to_sequence.outputs import Output
from ensue.tasks.sequence_to_sequence.task import Sources, most_written
from ensue.tasks.sequence_to_sequence.writer import Writer, on_one_line


class CaptioningPipeline(FramesPipeline, Writer[Captioned]):
    """A captioner with its tokenizer. Several runs with the same tokens can answer together."""

    unit = "image"
    recipe: CaptioningRecipe

    def __init__(
        self,
        model: TextModel,
        parts: CaptionerParts,
        *,
        recipe: CaptioningRecipe,
        ratio: float,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model, parts, recipe=recipe, run=run)
        self.rows = parts.rows
        self.begin_writing(parts.target, ratio)

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe: Any = directory.recipe
        ratio = directory.config["ratio"]
        return cls(directory.model(device), directory.parts, recipe=recipe, ratio=ratio, run=directory.path)

    @property
    def alike(self) -> Any:
        return [self.target.to_json(), self.rows, self.seen.shape.width]

    @property
    def most_written(self) -> int | None:
        return most_written(*(recipe.decoder for recipe in self.recipes))

    def sources(self, items: Sequence[Captioned]) -> Sources:
        rows = FrameRows.of([item.series.frames for item in items])
        return Sources(rows, tuple(() for _ in self.models))

    def encoded(self, items: Sequence[tuple[Captioned, str]]) -> tuple[Sources, Ragged]:
        ids = [np.append(self.target.encode(text), self.target.end_id) for _, text in items]
        for (item, _), found in zip(items, ids, strict=True):
            for recipe in self.recipes:
                check_caption(item.series, len(found), recipe)
        return self.sources([item for item, _ in items]), Ragged.of(ids)

    def _checked(self, series: Series) -> Series:
        check_looked_at(super()._checked(series), self.recipe, self.rows)
        return series

    def predict(self, texts: Iterable[Any]) -> list[Output]:
        """The caption of each image: an array of numbers (rows, columns · colors), or one of `source`."""
        return Answers(output for _, output in self.answers(map(Captioned, self._given(texts))))

    def predict_json(self, texts: Iterable[Any]) -> list[Any]:
        return [self._json(item, output) for item, output in self.answers(map(Captioned, self._given(texts)))]

    def _json(self, item: Captioned, output: Output) -> dict[str, Any]:
        found = {"series": item.series.name, **output.as_json()}
        if self.search.n_best > 1:
            found["outputs"] = [each.as_json() for each in (output, *output.others)]
        return found

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        for item, output in self.answers(map(Captioned, self._read(location, encoding, shard))):
            if as_json:
                yield json.dumps(self._json(item, output), ensure_ascii=False) + "\n"
                continue
            several = self.search.n_best > 1
            for each in (output, *output.others):
                score = f"{each.score:.4f}\t" if several else ""
                yield f"{item.series.name}\t{score}{on_one_line(each.text)}\n"

    def score(self, image: Any, caption: str) -> float:
        """The surprisal -ln P(caption | image) in nats, the end included."""
        (series,) = self._given([image])
        ((_, _, nats, _),) = self.surprisal([Captioned(series, (caption,))])
        return nats

    def score_json(self, text: Any) -> Any:
        """Raises EnsueError: the server's inputs are images, and a caption has no place there."""
        raise EnsueError("the surprisal is that of a caption, and the input is an image; `ensue score` reads both")

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """The lines of `ensue score`: the nats of each caption, its tokens, the caption; or a JSON object."""
        for item, text, nats, tokens in self.surprisal(self._captioned(location, encoding)):
            if as_json:
                found = {"series": item.series.name, "target": text, "nats": round(nats, 6), "tokens": tokens}
                yield json.dumps(found, ensure_ascii=False)
            else:
                yield f"{nats:.4f}\t{tokens}\t{on_one_line(text)}"

    def _captioned(self, location: Location, encoding: str) -> Iterator[Captioned]:
        return captioned(self._whole(location, encoding), self.recipe.data.separator)

    def evaluate(self, location: Location, *, encoding: str = "utf-8", compare: Self | None = None) -> GenerationScores:
        """The scores of the captions of images. `compare` tests the difference to another model's captions."""
        return self.score_pairs(list(self._captioned(location, encoding)), compare=compare)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return self.items_scored(list(self._captioned(location, encoding)))

    def inspect(self, image: Any, target: str | None = None) -> Inspection:
        """The page about an image, a path or an array, in this model, while it writes its caption or a given one."""
        return inspect_caption(self, self.only(image), target)

    def __repr__(self) -> str:
        tokens = f"{self.target.vocabulary_size:,} symbols"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)
