"""A reader in glimpses in use: predicts, evaluates, and shows the path of its glimpses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.arguments import check_whole
from ensue.data.files import Location
from ensue.errors import DataError
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.glimpses.model import (
    MEANS,
    GlimpseParts,
    PlaceDraws,
    caption_of,
    check_glimpsed,
    read_images,
)
from ensue.extensions.frames.glimpses.symbols import JudgedSymbols, SymbolScores, score_symbols, symbol_items
from ensue.extensions.frames.page import data_address
from ensue.extensions.frames.recipe import GlimpsesRecipe
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, chunked
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import Inspection, Section
from ensue.metrics.scores import ScoredItems


@dataclass(frozen=True)
class ReadSeries(Shown):
    """An image, by its name, with its symbols, their probabilities with that of the stop, and the places (S, N, 2) of
    the glimpses for each, (down, right), in pixels from the upper left corner.
    """

    series: str
    symbols: tuple[str, ...]
    probabilities: tuple[float, ...] = field(repr=False)
    places: NDArray[np.float32] = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The symbols with blanks between them."""
        return " ".join(self.symbols)

    @property
    def line(self) -> str:
        """The image and its symbols."""
        return f"{self.series}\t{self.text}"

    @property
    def probability(self) -> float:
        """That of all symbols and the stop."""
        return float(np.prod(self.probabilities))

    def _rows(self) -> list[dict[str, Any]]:
        return [{"series": self.series, "text": self.text, "probability": self.probability}]

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        return {
            "series": self.series, "text": self.text, "symbols": list(self.symbols),
            "probabilities": [round(share, 6) for share in self.probabilities],
            "places": np.round(self.places.astype(np.float64), 2).tolist(),
        }  # fmt: skip


class SymbolView(NamedTuple):
    """A symbol ("" for the stop) with its probability, and the places (down, right) of its glimpses, in pixels."""

    symbol: str
    probability: float
    places: list[tuple[float, float]]


class GlimpsesView(NamedTuple):
    """An image (H, W, C), its symbols with the stop, and the caption that its file has ("" for none)."""

    series: str
    caption: str
    symbols: list[SymbolView]
    pixels: NDArray[Any]


MAX_SHOWN_IMAGES = 12
"""The most images on a page."""
WIDTH = 720
"""Pixels of the width of a drawing, at most."""


def view_image(series: Series, answer: ReadSeries, colors: int) -> GlimpsesView:
    """Return the view of an image that was read."""
    pixels = series.frames.reshape(len(series.frames), -1, colors)
    places = [[(float(down), float(right)) for down, right in of_symbol] for of_symbol in answer.places]
    symbols = [SymbolView(*one) for one in zip((*answer.symbols, ""), answer.probabilities, places, strict=False)]
    return GlimpsesView(series.name, " ".join(dict.fromkeys(series.labels)), symbols, pixels)


def image_section(view: GlimpsesView, size: int) -> Section:
    """Return the drawing of an image, for patches of this size."""
    rows, columns, _ = view.pixels.shape
    zoom = max(1, min(8, WIDTH // columns))
    sizes = {"rows": rows, "columns": columns, "size": size, "zoom": zoom}
    return Section(
        view.series,
        "extensions/frames/glimpses/path.html",
        {"view": view, "address": data_address(view.pixels), **sizes},
    )


MAX_SAMPLES = 10_000


class GlimpsesPipeline(LabeledFramesPipeline[ReadSeries]):
    """A reader of images in glimpses: predicts, evaluates, and shows the path of glimpses."""

    recipe: GlimpsesRecipe
    parts: GlimpseParts

    def _checked(self, series: Series) -> Series:
        check_glimpsed(super()._checked(series), self.parts.rows, self.recipe)
        return series

    def predict(self, texts: Iterable[Any], *, samples: int = 0, seed: int = 0) -> list[ReadSeries]:
        """Return the symbols of each image: an array of numbers (rows, columns · colors), or one of `source`.

        By default places are their means. With `samples` the probabilities are averaged over so many ways through the
        image. Their places follow from its pixels and the seed. Raises EnsueError for images that the model does not
        read.
        """
        check_whole("samples", samples, least=0, most=MAX_SAMPLES)
        check_whole("seed", seed, least=0, most=(1 << 32) - 1)
        return Answers(answer for _, answer, _ in self.read(self._series_of(texts), ways=PlaceDraws(samples, seed)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ReadSeries]:
        return (answer for _, answer, _ in self.read(series))

    def read(
        self, series: Iterable[Series], *, with_captions: bool = False, ways: PlaceDraws | None = None
    ) -> Iterator[tuple[Series, ReadSeries, float]]:
        """Yield a stream of images with what is read in them and, if asked for, the surprisal of their captions. Places
        are their means, unless there are `ways` by which they are drawn.
        """
        for chunk in chunked(series):
            captions = [caption_of(one, self.recipe) if with_captions else () for one in chunk]
            rows = FrameRows.of([one.frames for one in chunk])
            most = self.recipe.glimpses.most_symbols
            answers = read_images(self.model, self.labels, rows, captions, most=most, ways=ways or MEANS)
            for one, (image, nats) in zip(chunk, answers, strict=True):
                shares = tuple(image.probabilities.tolist())
                yield one, ReadSeries(one.name, image.symbols, shares, self._pixels(image.places)), nats

    def _pixels(self, places: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return places in pixels from the upper left corner."""
        sides = np.array([self.parts.rows, self.seen.shape.width // self.recipe.glimpses.colors], np.float32)
        centers: NDArray[np.float32] = (sides + places * sides.max()) / 2
        return centers

    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> SymbolScores:
        """Return the scores on images with captions. Raises DataError for one without."""
        return score_symbols(self._judged(location, encoding))

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return symbol_items(self._judged(location, encoding), "series")

    def _judged(self, location: Location, encoding: str) -> Iterator[JudgedSymbols]:
        for one, answer, nats in self.read(self._scored_series(location, encoding), with_captions=True):
            yield JudgedSymbols(caption_of(one, self.recipe), answer.symbols, nats)

    def inspect_texts(self, *texts: Any, **options: Any) -> Inspection:
        """`inspect` of a location, or of the rows of one image, as the server has them."""
        return self.inspect(texts[0] if any(isinstance(text, str) for text in texts) else [texts], **options)

    def inspect(self, images: Any) -> Inspection:
        """Return where the model looks in images, the path of its glimpses with the symbol read at each: a file, a
        folder, a glob or a table of paths, of which the first few are shown; or a list of arrays as for `predict`.
        """
        is_place = isinstance(images, str | Path)
        series = map(self._checked, self.source(images)) if is_place else self._series_of(images)
        read = [(one, answer) for one, answer, _ in self.read(islice(series, MAX_SHOWN_IMAGES + 1))]
        if not read:
            raise DataError("no series in it", str(images) if is_place else None)
        table, facts = self.recipe.glimpses, self.facts(self.recipe.describe()) | {"symbols": f"{len(self.labels):,}"}
        facts |= {"images": f"the first {MAX_SHOWN_IMAGES}"} if len(read) > MAX_SHOWN_IMAGES else {}
        views = [view_image(one, answer, table.colors) for one, answer in read[:MAX_SHOWN_IMAGES]]
        title = views[0].series if len(views) == 1 else f"{len(views)} images"
        return Inspection(title, views, facts, [image_section(view, table.size) for view in views])
