"""Training and use of captioners: prediction, scores, evaluation, and the page that shows the attention."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.files import Data
from ensue.errors import EnsueError, check_type
from ensue.extensions.frames.captioning import model as captioning
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import make_data_url
from ensue.extensions.frames.recipe import CaptioningRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, SeriesData
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.extensions.frames.tasks.pipeline import FramesPipeline
from ensue.inspection.drawing import draw_matrix
from ensue.inspection.notebook import Answers
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip, note_cut
from ensue.metrics.generation import GenerationScores, check_scorable
from ensue.metrics.scores import ScoredItems
from ensue.models.encoder_decoder import TextModel
from ensue.models.modules import evaluating
from ensue.nn import ImageGrid
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import UNSHARDED, Shard
from ensue.tasks.contract.data_set import DataSetJob
from ensue.tasks.sequence_to_sequence.page import MAX_OUTPUT, MAX_SOURCE, record_search, search_sections, token_section
from ensue.tasks.sequence_to_sequence.task import EncodedPairs, SequenceToSequence, Sources, length_ratio, search_of
from ensue.tasks.sequence_to_sequence.view import OutputView, output_fields
from ensue.tasks.sequence_to_sequence.writer import Output, Writer, on_one_line, sample_lines, score_table, symbol_of
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizers import train_tokenizer


@dataclass(frozen=True)
class CaptionView(OutputView):
    """The view of a caption. The columns of `alignment` are the cells of `grid`, row by row, or frames of a series."""

    series: str
    image: NDArray[np.float32] | None
    """The pixels (rows, columns, colors); None if the series is not an image."""
    grid: tuple[int, int] | None
    """The numbers of rows and columns of the grid."""
    gates: NDArray[np.float64] | None
    """The gate β (T,) of each token; None for a decoder without a gate."""


MAX_WIDTH, MAX_HEIGHT = 300, 220
"""The largest size of an image in pixels."""
MIN_SHOWN_WEIGHT = 0.02
"""The smallest weight that is drawn."""
MAX_OPACITY = 0.75


def _attention_section(view: CaptionView) -> Section:
    """Return the image with the attention of each token, or the matrix of attention if the series is not an image."""
    count = min(len(view.output), MAX_OUTPUT)
    weights, note = view.alignment, note_cut(len(view.output), count, "tokens of the caption")
    if view.image is None or view.grid is None:
        drawing = None
        if weights is not None:
            frames = [f"frame {number}" for number in range(min(weights.shape[1], MAX_SOURCE))]
            drawing = draw_matrix(weights[:count, :MAX_SOURCE], view.output[:count], frames, name="attention", key="t")
        return Section("Attention", "extensions/frames/captioning/frames.html", {"drawing": drawing, "note": note})
    rows, columns, _ = view.image.shape
    scale = min(MAX_WIDTH / columns, MAX_HEIGHT / rows)
    content: dict[str, Any] = {
        "address": make_data_url(view.image), "size": (columns, rows), "shown_size": (columns * scale, rows * scale),
        "has_attention": weights is not None, "note": note,
        "tokens": [
            (
                view.output[number],
                None if view.gates is None else float(view.gates[number]),
                [] if weights is None else grid_cells(weights[number], view.grid, (rows, columns)),
            )
            for number in range(count)
        ],
    }  # fmt: skip
    return Section("Attention", "extensions/frames/captioning/attention.html", content)


def grid_cells(weights: NDArray[np.float32], grid: tuple[int, int], size: tuple[int, int]) -> list[tuple[float, ...]]:
    """Return the cells of a grid (rows, columns) over an image (rows, columns), for attention weights (L,).

    A cell is a rectangle (x, y, width, height) in pixels of the image, with its attention weight and its opacity.
    """
    height, width = size[0] / grid[0], size[1] / grid[1]
    largest = max(float(weights.max(initial=0.0)), 1e-9)
    return [
        (column * width, row * height, width, height, float(weight), MAX_OPACITY * float(weight) / largest)
        for (row, column), weight in np.ndenumerate(weights.reshape(grid))
        if weight >= MIN_SHOWN_WEIGHT
    ]


class CaptioningPipeline(FramesPipeline, Writer[captioning.CaptionedSeries]):
    """The pipeline of a captioner. Several runs with the same tokenizer form an ensemble."""

    unit = "image"
    recipe: CaptioningRecipe
    parts: captioning.CaptionerParts

    def __init__(self, model: TextModel, parts: captioning.CaptionerParts, **options: Any) -> None:
        super().__init__(model, parts, **options)
        self.init_generation(parts.target, parts.ratio)

    @property
    def ensemble_key(self) -> Any:
        return [self.target.to_json(), self.parts.rows, self.statistics.shape.width]

    def sources(self, items: Sequence[captioning.CaptionedSeries]) -> Sources:
        return Sources(FrameRows.of_series([item.series for item in items]), tuple(() for _ in self.models))

    def encode(self, items: Sequence[tuple[captioning.CaptionedSeries, str]]) -> tuple[Sources, Ragged]:
        ids = [np.append(self.target.encode(text), self.target.end_id) for _, text in items]
        for (item, _), target in zip(items, ids, strict=True):
            for recipe in self.recipes:
                captioning.check_caption(item.series, len(target), recipe)
        return self.sources([item for item, _ in items]), Ragged.of(ids)

    def _check_series(self, series: Series) -> Series:
        captioning.check_readable(super()._check_series(series), self.parts.rows, self.recipe)
        return series

    def predict(self, texts: Iterable[Any]) -> Answers[Output]:
        """Return the caption of each image. Images are arrays (rows, columns · colors), or series of `source`."""
        return Answers(output for _, output in self.answers(map(captioning.CaptionedSeries, self._to_series(texts))))

    def predict_json(self, texts: Iterable[Any]) -> list[Any]:
        items = map(captioning.CaptionedSeries, self._to_series(texts))
        return [self._json(item, output) for item, output in self.answers(items)]

    def _json(self, item: captioning.CaptionedSeries, output: Output) -> dict[str, Any]:
        values = {"series": item.series.name, **output.as_json()}
        if self.search.n_best > 1:
            values["outputs"] = [hypothesis.as_json() for hypothesis in (output, *output.others)]
        return values

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        for item, output in self.answers(map(captioning.CaptionedSeries, self._read(location, encoding, shard))):
            if as_json:
                yield json.dumps(self._json(item, output), ensure_ascii=False) + "\n"
                continue
            for hypothesis in (output, *output.others):
                score = f"{hypothesis.score:.4f}\t" if self.search.n_best > 1 else ""
                yield f"{item.series.name}\t{score}{on_one_line(hypothesis.text)}\n"

    def score(self, image: Any, caption: str) -> float:
        """Return the surprisal -ln P(caption | image) in nats, which includes the end token."""
        (series,) = self._to_series([image])
        ((_, _, nats, _),) = self.surprisal([captioning.CaptionedSeries(series, (caption,))])
        return nats

    def score_json(self, text: Any) -> Any:
        """Raise EnsueError, since the server passes an image without a caption."""
        raise EnsueError("the server has no scores of images; `ensue score` reads images with captions")

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """Yield the lines of `ensue score`: nats, number of tokens and caption, or JSON objects."""
        for item, text, nats, tokens in self.surprisal(self._read_captioned(location, encoding)):
            if as_json:
                values = {"series": item.series.name, "target": text, "nats": round(nats, 6), "tokens": tokens}
                yield json.dumps(values, ensure_ascii=False)
            else:
                yield f"{nats:.4f}\t{tokens}\t{on_one_line(text)}"

    def _read_captioned(self, location: Data, encoding: str) -> Iterator[captioning.CaptionedSeries]:
        """Yield images with their captions. Neighboring series with the same name and file are one image."""
        for _, group in groupby(self._read_labeled(location, encoding), key=lambda image: (image.name, image.place)):
            rows = list(group)
            captions = (captioning.split_captions(image, self.recipe.data.separator) for image in rows)
            yield captioning.CaptionedSeries(rows[0], tuple(chain.from_iterable(captions)))

    def evaluate(self, location: Data, *, encoding: str = "utf-8", compare: Self | None = None) -> GenerationScores:
        """Return the scores of predicted captions, with a significance test of the difference to `compare`, if any."""
        return self.score_pairs(list(self._read_captioned(location, encoding)), compare=compare)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        return self.score_items(list(self._read_captioned(location, encoding)))

    def inspect(self, image: Any, target: str | None = None) -> Inspection:
        """Return the page of an image (a path or an array) with the attention for `target` or the predicted caption."""
        series = self.read_single(image)
        sources, symbol = self.sources([captioning.CaptionedSeries(series)]), partial(symbol_of, self.target)
        if target is None:
            search = record_search(self, sources, symbol)
            best = search.hypotheses[0]
            ids = [*best.ids, *([self.target.end_id] if best.is_complete else [])]
            text = self.target.decode(best.ids)
        else:
            check_type("the target", target, str, "a string")
            search, text, ids = None, target, [*self.target.encode(target).tolist(), self.target.end_id]
            captioning.check_caption(series, len(ids), self.recipe)
        if not ids:
            raise EnsueError("nothing to inspect: the caption has no tokens")
        fields, attention = output_fields(self.models, sources, ids, begin_id=self.target.begin_id, symbol=symbol)
        grid: ImageGrid | None = self.model.grid
        pixels = None if grid is None else series.frames.reshape(grid.rows, -1, grid.colors)
        shape = None if grid is None else grid.grid
        fields |= {"text": text, "search": search, "series": series.name, "gates": attention.gates}
        view = CaptionView(**fields, image=pixels, grid=shape)
        facts = {
            **self.facts(self.recipe.describe()),
            "search": "none: the caption is an argument" if search is None else self.describe_search(),
            "caption": text,
        }
        sections = [_attention_section(view), token_section(view), *search_sections(view, self.search)]
        return Inspection(clip(series.name, MAX_TITLE_CHARACTERS), view, facts, sections)

    def __repr__(self) -> str:
        tokens = f"{self.target.vocabulary_size:,} symbols"
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", tokens)


class CaptioningJob(DataSetJob[TextModel, LabeledSeries]):
    """The training job of a captioner."""

    unit: ClassVar[str] = "tokens"
    recipe: CaptioningRecipe
    parts: captioning.CaptionerParts
    task: SequenceToSequence

    def __init__(self, recipe: CaptioningRecipe, run: RunDirectory | None = None) -> None:
        labels_of = partial(captioning.split_captions, separator=recipe.data.separator)
        data = SeriesData(recipe, run, labels_of=labels_of, check=partial(captioning.check_readable, recipe=recipe))
        super().__init__(recipe, data)
        rows = data.rows if recipe.reads_images else 0
        self.parts = self._make_parts(data.statistics(), rows) if run is None else run.parts
        target = self.parts.target
        check_scorable()
        search_of(recipe.search, target)  # raises errors of the search before training
        train = self.encode(self.split.train)
        valid = None if self.split.valid is None else self.encode(self.split.valid)
        self.parts = replace(self.parts, ratio=length_ratio(train))
        begin_id, sizes = target.begin_id, recipe.train
        self.task = SequenceToSequence(train, valid, begin_id=begin_id, sizes=sizes, sampler=self._sample_captions)

    def _make_parts(self, statistics: FrameStatistics, rows: int) -> captioning.CaptionerParts:
        captions = (caption for captions in self.split.train.labels for caption in captions)
        texts = (text for caption in captions for text in (" ", caption, "\n"))
        tokenizer = train_tokenizer(chunks=texts, **self.recipe.tokenizer.model_dump())
        return captioning.CaptionerParts(statistics, TokenizerWithSpecials(tokenizer), rows)

    def encode(self, data: LabeledSeries) -> EncodedPairs:
        rows = np.repeat(np.arange(len(data)), [len(captions) for captions in data.labels])
        sources = data.rows if len(rows) == len(data) else data.rows.select(rows)
        target, captions = self.parts.target, (caption for captions in data.labels for caption in captions)
        ids = (np.append(target.encode(caption), target.end_id) for caption in captions)
        pairs = EncodedPairs(sources, Ragged.of(ids))
        for row, length in zip(rows.tolist(), pairs.targets.lengths.tolist(), strict=True):
            captioning.check_caption(Series(str(row), data.rows[row]), length, self.recipe)
        return pairs

    def pipeline(self, model: TextModel) -> CaptioningPipeline:
        """Return the pipeline of the model."""
        return CaptioningPipeline(model, self.parts, recipe=self.recipe)

    def _sample_captions(self, model: TextModel) -> str:
        """Return the predicted and the gold captions of the first validation images, for the log."""
        if self.split.valid is None:
            return ""
        items = list(islice(_group_captions(self.split.valid), self.recipe.train.samples))
        with evaluating(model):
            answers = list(self.pipeline(model).with_search(width=1).answers(items))
        return sample_lines((item.series.name, output.text, item.targets[0]) for item, output in answers)

    def prepare(self, model: TextModel) -> None:
        counts = np.bincount(self.task.train.targets.values, minlength=model.vocabulary_size)
        model.start_from_counts(torch.from_numpy(counts))

    def config(self) -> dict[str, Any]:
        return {"target_size": self.parts.target.vocabulary_size, "rows": self.parts.rows, "ratio": self.parts.ratio}

    def test(self, model: TextModel) -> GenerationScores | None:
        test = self.split.test
        return None if test is None else self.pipeline(model).score_pairs(list(_group_captions(test)))

    @property
    def data(self) -> str:
        tokens = int(self.task.train.targets.lengths.sum())
        return f"{super().data}; captions of {tokens:,} tokens, {self.parts.target.vocabulary_size:,} symbols"

    def about(self) -> str:
        return f"of {'images' if self.recipe.reads_images else 'series of frames'}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores)


def _group_captions(data: LabeledSeries) -> Iterator[captioning.CaptionedSeries]:
    """Yield images with their captions. Equal neighboring rows are one image with several captions."""
    for number, (_, group) in enumerate(groupby(range(len(data)), data.digests.__getitem__), 1):
        rows = list(group)
        captions = tuple(caption for row in rows for caption in data.labels[row])
        yield captioning.CaptionedSeries(Series(f"image {number}", data.rows[rows[0]]), captions)
