"""A captioner in use: predicts, scores, evaluates, and shows where it looks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_type
from ensue.data.compact_texts import Ragged
from ensue.data.files import Location
from ensue.errors import EnsueError
from ensue.extensions.frames.captioning.model import (
    Captioned,
    CaptionerParts,
    captions_of,
    check_caption,
    check_looked_at,
)
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import data_address
from ensue.extensions.frames.recipe import CaptioningRecipe
from ensue.extensions.frames.tasks.pipeline import FramesPipeline
from ensue.inspection.drawing import matrix
from ensue.inspection.markup import clipped
from ensue.inspection.notebook import Answers
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.metrics.generation import GenerationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.nn import ImageGrid
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import WHOLE, Shard
from ensue.tasks.sequence_to_sequence.outputs import Output, shown
from ensue.tasks.sequence_to_sequence.page import MOST_OUTPUT, MOST_SOURCE, recorded_search, token_section
from ensue.tasks.sequence_to_sequence.search_page import search_sections
from ensue.tasks.sequence_to_sequence.task import Sources
from ensue.tasks.sequence_to_sequence.view import OutputView, output_parts
from ensue.tasks.sequence_to_sequence.writer import Writer, on_one_line


@dataclass(frozen=True)
class CaptionView(OutputView):
    """A caption of a series. The columns of its alignments are the places of `grid`, row by row, or the frames."""

    series: str
    image: NDArray[np.float32] | None
    """(rows, columns, colors); None for a series that is no image."""
    grid: tuple[int, int] | None
    """The rows and columns of the grid."""
    gates: NDArray[np.float64] | None
    """β (T,); None for a decoder without a gate."""


MAX_WIDTH, MAX_HEIGHT = 300, 220
"""The pixels that an image has room for."""
MIN_SHOWN_WEIGHT = 0.02
"""Weights below are not drawn."""
MAX_OPACITY = 0.75


class Place(NamedTuple):
    """A place of the grid, in pixels of the image, with the weight, and its strength in the drawing."""

    x: float
    y: float
    width: float
    height: float
    weight: float
    strength: float


def _looks(view: CaptionView) -> Section:
    """Return the image once for each token, with where the decoder looks; of a series that is no image a matrix."""
    count = min(len(view.output), MOST_OUTPUT)
    weights, note = view.alignment, cut(len(view.output), count, "tokens of the caption")
    if view.image is None or view.grid is None:
        drawing = None
        if weights is not None:
            frames = [f"frame {number}" for number in range(min(weights.shape[1], MOST_SOURCE))]
            drawing = matrix(weights[:count, :MOST_SOURCE], view.output[:count], frames, name="attention", key="t")
        return Section("Where it looks", "extensions/frames/captioning/frames.html", {"drawing": drawing, "note": note})
    rows, columns, _ = view.image.shape
    scale = min(MAX_WIDTH / columns, MAX_HEIGHT / rows)
    shown: dict[str, Any] = {
        "address": data_address(view.image),
        "size": (columns, rows),
        "shown_size": (columns * scale, rows * scale),
        "has_looks": weights is not None,
        "note": note,
        "tokens": [
            (
                view.output[place],
                None if view.gates is None else float(view.gates[place]),
                [] if weights is None else places(weights[place], view.grid, (rows, columns)),
            )
            for place in range(count)
        ],
    }
    return Section("Where it looks", "extensions/frames/captioning/looks.html", shown)


def places(weights: NDArray[np.float32], grid: tuple[int, int], size: tuple[int, int]) -> list[Place]:
    """Return the places of a grid, each of which stands for a rectangle of the image, with their weights (L,)."""
    height, width = size[0] / grid[0], size[1] / grid[1]
    most = max(float(weights.max(initial=0.0)), 1e-9)
    return [
        Place(column * width, row * height, width, height, float(weight), MAX_OPACITY * float(weight) / most)
        for (row, column), weight in np.ndenumerate(weights.reshape(grid))
        if weight >= MIN_SHOWN_WEIGHT
    ]


class CaptioningPipeline(FramesPipeline, Writer[Captioned]):
    """A captioner with its tokenizer. Several runs with the same tokens can answer together."""

    unit = "image"
    recipe: CaptioningRecipe
    parts: CaptionerParts

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
        self.begin_writing(parts.target, ratio)

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe: Any = directory.recipe
        ratio = directory.config["ratio"]
        return cls(directory.model(device), directory.parts, recipe=recipe, ratio=ratio, run=directory.path)

    @property
    def alike(self) -> Any:
        return [self.target.to_json(), self.parts.rows, self.seen.shape.width]

    def sources(self, items: Sequence[Captioned]) -> Sources:
        rows = FrameRows.of([item.series.frames for item in items])
        return Sources(rows, tuple(() for _ in self.models))

    def encoded(self, items: Sequence[tuple[Captioned, str]]) -> tuple[Sources, Ragged]:
        ids = [np.append(self.target.encode(text), self.target.end_id) for _, text in items]
        for (item, _), target in zip(items, ids, strict=True):
            for recipe in self.recipes:
                check_caption(item.series, len(target), recipe)
        return self.sources([item for item, _ in items]), Ragged.of(ids)

    def _checked(self, series: Series) -> Series:
        check_looked_at(super()._checked(series), self.parts.rows, self.recipe)
        return series

    def predict(self, texts: Iterable[Any]) -> list[Output]:
        """Return the caption of each image: an array of numbers (rows, columns · colors), or one of `source`."""
        return Answers(output for _, output in self.answers(map(Captioned, self._series_of(texts))))

    def predict_json(self, texts: Iterable[Any]) -> list[Any]:
        return [self._json(item, output) for item, output in self.answers(map(Captioned, self._series_of(texts)))]

    def _json(self, item: Captioned, output: Output) -> dict[str, Any]:
        values = {"series": item.series.name, **output.as_json()}
        if self.search.n_best > 1:
            values["outputs"] = [each.as_json() for each in (output, *output.others)]
        return values

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
        """Return the surprisal -ln P(caption | image) in nats, the end included."""
        (series,) = self._series_of([image])
        ((_, _, nats, _),) = self.surprisal([Captioned(series, (caption,))])
        return nats

    def score_json(self, text: Any) -> Any:
        """Raise EnsueError: the server's inputs are images, and a caption has no place there."""
        raise EnsueError("the surprisal is that of a caption, and the input is an image; `ensue score` reads both")

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """Yield the lines of `ensue score`: the nats of each caption, its tokens, the caption; or a JSON object."""
        for item, text, nats, tokens in self.surprisal(self._captioned(location, encoding)):
            if as_json:
                values = {"series": item.series.name, "target": text, "nats": round(nats, 6), "tokens": tokens}
                yield json.dumps(values, ensure_ascii=False)
            else:
                yield f"{nats:.4f}\t{tokens}\t{on_one_line(text)}"

    def _captioned(self, location: Location, encoding: str) -> Iterator[Captioned]:
        """Yield series with their captions. If a file comes several times in a row, these are captions of one image."""
        for _, group in groupby(self._scored_series(location, encoding), key=lambda one: (one.name, one.place)):
            several = list(group)
            captions = (captions_of(one, self.recipe.data.separator) for one in several)
            yield Captioned(several[0], tuple(chain.from_iterable(captions)))

    def evaluate(self, location: Location, *, encoding: str = "utf-8", compare: Self | None = None) -> GenerationScores:
        """Return the scores of the captions of images. `compare` tests the difference to another model's captions."""
        return self.score_pairs(list(self._captioned(location, encoding)), compare=compare)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return self.items_scored(list(self._captioned(location, encoding)))

    def inspect(self, image: Any, target: str | None = None) -> Inspection:
        """Return the page about an image, a path or an array, in this model, while it writes its caption or a given
        one.
        """
        series = self.only(image)
        sources, symbol = self.sources([Captioned(series)]), partial(shown, self.target)
        if target is None:
            search = recorded_search(self, sources, symbol)
            best = search.hypotheses[0]
            ids = [*best.ids, *([self.target.end_id] if best.is_complete else [])]
            text = self.target.decode(best.ids)
        else:
            check_type("the target", target, str, "a string")
            search, text, ids = None, target, [*self.target.encode(target).tolist(), self.target.end_id]
            check_caption(series, len(ids), self.recipe)
        if not ids:
            raise EnsueError("there is nothing to look into: the caption has no tokens")
        parts, seen = output_parts(self.models, sources, ids, begin_id=self.target.begin_id, symbol=symbol)
        grid: ImageGrid | None = self.model.grid
        pixels = None if grid is None else series.frames.reshape(grid.rows, -1, grid.colors)
        shape = None if grid is None else grid.grid
        parts |= {"text": text, "search": search, "series": series.name, "gates": seen.gates}
        view = CaptionView(**parts, image=pixels, grid=shape)
        facts = {
            **self.facts(self.recipe.describe()),
            "search": "none, the caption was given" if search is None else self.protocol_of_search(),
            "caption": text,
        }
        sections = [_looks(view), token_section(view), *search_sections(view, self.search)]
        return Inspection(clipped(series.name, TITLE), view, facts, sections)

    def __repr__(self) -> str:
        tokens = f"{self.target.vocabulary_size:,} symbols"
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)
