"""The pipeline of models that read images by glimpses: prediction, evaluation, and the page with the glimpses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.files import Data
from ensue.errors import DataError, check_integer
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.glimpses import model as glimpses
from ensue.extensions.frames.page import make_data_url
from ensue.extensions.frames.recipe import GlimpsesRecipe
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, split_into_chunks
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import Inspection, Section


@dataclass(frozen=True)
class ReadSeries(Shown):
    """The predicted symbols of an image."""

    series: str
    symbols: tuple[str, ...]
    probabilities: tuple[float, ...] = field(repr=False)
    """The probabilities of the symbols and of the stop."""
    places: NDArray[np.float32] = field(repr=False, compare=False)
    """The places (S, N, 2) of the N glimpses for each symbol: (down, right) in pixels from the upper left corner."""

    @property
    def text(self) -> str:
        """The symbols, separated by blanks."""
        return " ".join(self.symbols)

    @property
    def line(self) -> str:
        """The name of the image and the symbols."""
        return f"{self.series}\t{self.text}"

    @property
    def probability(self) -> float:
        """The product of `probabilities`."""
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
    """A symbol ("" for the stop) with its probability, and the places of its glimpses as (down, right) in pixels."""

    symbol: str
    probability: float
    places: list[tuple[float, float]]


class GlimpsesView(NamedTuple):
    """The view of an image (H, W, C): the symbols with the stop, and the caption in the file ("" without caption)."""

    series: str
    caption: str
    symbols: list[SymbolView]
    pixels: NDArray[Any]


MAX_SHOWN_IMAGES = 12
MAX_WIDTH = 720
"""The largest width of a drawing in pixels."""


def view_image(series: Series, answer: ReadSeries, colors: int) -> GlimpsesView:
    """Return the view of an image."""
    pixels = series.frames.reshape(len(series.frames), -1, colors)
    places = [[(float(down), float(right)) for down, right in centers] for centers in answer.places]
    symbols = list(map(SymbolView, (*answer.symbols, ""), answer.probabilities, places))
    return GlimpsesView(series.name, " ".join(dict.fromkeys(series.labels)), symbols, pixels)


def image_section(view: GlimpsesView, size: int) -> Section:
    """Return the section with an image and its glimpses, for patches of `size` pixels."""
    rows, columns, _ = view.pixels.shape
    zoom = max(1, min(8, MAX_WIDTH // columns))
    values: dict[str, Any] = {"view": view, "address": make_data_url(view.pixels)}
    values |= {"rows": rows, "columns": columns, "size": size, "zoom": zoom}
    return Section(view.series, "extensions/frames/glimpses/path.html", values)


MAX_SAMPLES = 10_000


class GlimpsesPipeline(LabeledFramesPipeline[ReadSeries]):
    """The pipeline of a model that reads images by glimpses."""

    recipe: GlimpsesRecipe
    parts: glimpses.GlimpseParts
    tally_of = staticmethod(lambda labels: glimpses.SymbolTally())

    def _check_series(self, series: Series) -> Series:
        glimpses.check_glimpse_sizes(super()._check_series(series), self.parts.rows, self.recipe)
        return series

    def predict(self, texts: Iterable[Any], *, samples: int = 0, seed: int = 0) -> Answers[ReadSeries]:
        """Return the symbols of each image.

        Args:
            texts: Images, as arrays (rows, columns · colors) or series that `source(path)` yields.
            samples: The number of sampled sequences of places, over which probabilities are averaged; 0: mean places.
            seed: The seed of the samples, which also depend on the pixels of the image.

        Raises:
            EnsueError: The model cannot read an image.
        """
        check_integer("samples", samples, 0, MAX_SAMPLES)
        check_integer("seed", seed, 0, (1 << 32) - 1)
        return Answers(answer for _, answer, _ in self.read(self._to_series(texts), samples=samples, seed=seed))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ReadSeries]:
        return (answer for _, answer, _ in self.read(series))

    def read(
        self, series: Iterable[Series], *, with_captions: bool = False, samples: int = 0, seed: int = 0
    ) -> Iterator[tuple[Series, ReadSeries, float]]:
        """Yield images with predicted symbols and, if `with_captions` is true, the surprisal of their captions."""
        options = {"max_symbols": self.recipe.glimpses.most_symbols, "samples": samples, "seed": seed}
        sides = np.array([self.parts.rows, self.statistics.shape.width // self.recipe.glimpses.colors], np.float32)
        for chunk in split_into_chunks(series):
            captions = [glimpses.parse_caption(image, self.recipe) if with_captions else () for image in chunk]
            answers = glimpses.read_images(self.model, self.labels, FrameRows.of_series(chunk), captions, **options)
            for image, (symbols, probabilities, places, nats) in zip(chunk, answers, strict=True):
                shares, pixels = tuple(probabilities.tolist()), (sides + places * sides.max()) / 2
                yield image, ReadSeries(image.name, symbols, shares, pixels), nats

    def evaluate(self, location: Data, *, encoding: str = "utf-8") -> glimpses.SymbolScores:
        """Return the scores on images with captions. Raises DataError for an image without a caption."""
        return glimpses.SymbolTally().scores_of(self._predict_with_gold(location, encoding))

    def _predict_with_gold(self, location: Data, encoding: str) -> Iterator[glimpses.JudgedSymbols]:
        for image, answer, nats in self.read(self._read_labeled(location, encoding), with_captions=True):
            yield glimpses.JudgedSymbols(glimpses.parse_caption(image, self.recipe), answer.symbols, nats)

    def inspect_texts(self, *texts: Any, encoding: str | None = None, **options: Any) -> Inspection:
        """Return the page of a location, or of an image whose rows are the arguments, for a request to the server."""
        if not any(isinstance(text, str) for text in texts):
            return self.inspect([texts], **options)
        return self.inspect(self.source(texts[0], encoding=encoding), **options)

    def inspect(self, images: Any) -> Inspection:
        """Return the page with the glimpses of the first images in a location, or in a list as for `predict`."""
        source = self.source(images) if isinstance(images, str | Path) else images
        is_location = isinstance(source, FrameSource)
        series = map(self._check_series, source) if is_location else self._to_series(images)
        answers = [(image, answer) for image, answer, _ in self.read(islice(series, MAX_SHOWN_IMAGES + 1))]
        if not answers:
            raise DataError("no series found", source.location if is_location else None)
        table, facts = self.recipe.glimpses, self.facts(self.recipe.describe()) | {"symbols": f"{len(self.labels):,}"}
        facts |= {"images": f"the first {MAX_SHOWN_IMAGES}"} if len(answers) > MAX_SHOWN_IMAGES else {}
        views = [view_image(image, answer, table.colors) for image, answer in answers[:MAX_SHOWN_IMAGES]]
        title = views[0].series if len(views) == 1 else f"{len(views)} images"
        return Inspection(title, views, facts, [image_section(view, table.size) for view in views])
