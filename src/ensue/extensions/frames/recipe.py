"""The tables, recipes and entries of the tasks of frames. This module does not import torch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from ensue.models import specification
from ensue.models.word_specification import PathHeadSpecification, PoolingHeadSpecification
from ensue.recipe.tables import DividedData, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.entry import TaskEntry
from ensue.tasks.sequence_to_sequence.recipe import SearchTable

if TYPE_CHECKING:
    from ensue.extensions.frames.data.series import SeriesOptions

Weight = Annotated[float, Field(ge=0, le=1e6)]
Side = Annotated[int, Field(ge=1, le=10_000)]
Number = Annotated[int, Field(ge=1, le=100)]
Place = Annotated[list[Annotated[float, Field(ge=-2, le=2)]], Field(min_length=2, max_length=2)]
Glimpses = Annotated[int, Field(ge=1, le=10_000)]


class FrameFeatureSpecification(specification.Table):
    """The table `[features]`: the features of frames, and the conversion of sounds to frames."""

    normalize: Literal["training", "none"] = "training"
    """training: each feature has mean 0 and deviation 1 in the training data; none: features are not changed."""
    noise: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """The deviation of the normal noise that is added to normalized features in training."""
    dropout: specification.Share = 0.0
    """Dropout on the features."""
    window: Annotated[float, Field(ge=1e-4, le=10)] = 0.025
    """For sounds: the length of a frame in seconds."""
    step: Annotated[float, Field(ge=1e-4, le=10)] = 0.010
    """For sounds: the time in seconds from the start of a frame to the start of the next frame."""
    bands: Annotated[int, Field(ge=1, le=1000)] = 40
    """For sounds: the number of features, the logarithms of energies in bands that are evenly spaced in mel."""
    lowest: Annotated[float, Field(ge=0, le=1_000_000)] = 20.0
    """For sounds: the lower edge of the lowest band, in hertz."""
    highest: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """For sounds: the upper edge of the highest band, in hertz; 0: half of the sampling rate."""
    floor: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """For sounds: the smallest energy of a band, for samples from -1 to 1."""
    top_db: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds: the range of features in decibels. The largest feature of a recording is subtracted, and features
    below the range are set to its lower end. 0: features are absolute.
    """
    shift: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds, in training: the largest shift in bands, which imitates other vocal tracts (Jaitly & Hinton 2013)."""
    stretch: Annotated[float, Field(ge=0, le=1)] = 0.0
    """For sounds, in training: the logarithm of the largest factor by which the axis of bands is stretched."""
    filter: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds, in training: the deviation of a smooth curve over the bands that is added to all frames of a
    recording, which imitates rooms and microphones (Nam et al. 2022).
    """


class MixtureHeadSpecification(specification.Table):
    """The table `[head]` of a frame predictor."""

    components: Annotated[int, Field(ge=1, le=1000)] = 1
    """The number of normal distributions in the mixture."""
    least_deviation: Annotated[float, Field(gt=0, le=1)] = 0.01
    """The smallest deviation of a normalized feature, since the density of a constant feature is unbounded."""


class LatentSpecification(specification.Table):
    """The table `[latent]`: the latent variables of a frame predictor."""

    kind: Literal["none", "storn", "vrnn"] = "none"
    """storn: the latent variables are independent, from N(0, 1) (Bayer & Osendorfer 2014); vrnn: the prior of the
    latent variables depends on the earlier frames (Chung et al. 2015).
    """
    size: specification.Size = 32
    """The number of latent variables of a frame."""
    d_hidden: specification.Size = 128
    """vrnn: the width of the hidden layers between frames, latent variables and recurrent layers."""
    looks_ahead: bool = False
    """storn: whether the recognition layers also read later frames."""


class GridSpecification(specification.Table):
    """The table `[grid]`: the conversion of an image to the vectors to which the decoder attends."""

    kind: Literal["convolutions", "none"] = "convolutions"
    """convolutions: a convolutional network computes a grid of vectors; none: the vectors are the frames, such as the
    outputs of another network for the locations of an image.
    """
    colors: Annotated[int, Field(ge=1, le=1_000)] = 1
    """The number of values of a pixel, such as 3 for red, green and blue. They are side by side in a row."""
    channels: list[specification.Size] = Field(default=[16, 32, 64, 96], min_length=1, max_length=100)
    """The number of channels of each 3 × 3 convolution."""
    halvings: specification.UpTo100 = 4
    """The number of convolutions, from the first on, that are followed by max pooling over 2 × 2 pixels."""
    dropout: specification.Share = 0.0
    """Dropout on the vectors of the grid."""


class CaptionAttention(specification.Attention):
    """The table `[attention]` of a captioner."""

    kind: Literal["scaled-dot", "dot", "bilinear", "additive", "none"] = "additive"
    before: bool = True
    """Whether a recurrent decoder computes its attention from the previous state, before its step (Xu et al. 2015)."""
    gate: bool = True
    """Whether the attended vector is multiplied by a gate (β of Xu et al. 2015)."""
    doubly_stochastic: Weight = 0.01
    """λ in the loss term λ Σ_i (1 − Σ_t α_ti)², by which the weights of each location sum to about 1; 0: none."""
    hard: bool = False
    """Whether a step attends to a random location instead of the mean over all locations."""
    expected: specification.Share = 0.5
    """For hard attention: the share of steps in which the mean replaces the random location."""
    entropy: Weight = 0.01
    """For hard attention: the weight of the entropy of α in the loss, which keeps α spread out in early training."""

    def problems(self) -> Iterator[str]:
        if self.hard and not (self.before and self.kind == "additive"):
            yield 'attention.hard needs attention.kind = "additive" and attention.before = true'
        if self.before and self.feeding:
            yield "attention.before and attention.feeding exclude each other"


class GlimpseSpecification(specification.Table):
    """The table `[glimpses]`: the patches of a glimpse, and the prediction of places.

    The unit of places is half of the longer side of the image. A place is (down, right), relative to the center.
    """

    colors: Number = 1
    """The number of values of a pixel, such as 3 for red, green and blue. They are side by side in a row."""
    size: Side = 16
    """The side of a patch in pixels."""
    scales: Annotated[int, Field(ge=1, le=10)] = 2
    """The number of patches of a glimpse. Each patch has twice the side of the previous one, at half its resolution."""
    each: Number = 2
    """The number of glimpses for each symbol."""
    convolutions: list[specification.Size] = Field(default=[16, 32])
    """The numbers of channels of the convolutions over a glimpse. Each convolution halves the sides of its input."""
    view: Side = 4
    """The reduction factor of the coarse view of the image, from which the first place is predicted."""
    view_convolutions: list[specification.Size] = Field(default=[16])
    """The numbers of channels of the convolutions over the coarse view."""
    deviation: Annotated[float, Field(gt=0, le=2)] = 0.06
    """The deviation σ of the random places in training. Prediction takes the mean."""
    samples: Number = 1
    """The number of paths through each image in a training step. A path's baseline includes the mean of other paths."""
    relative: bool = True
    """Whether places are predicted relative to the previous place."""
    start: Place = Field(default=[0.0, 0.0])
    """The first place of an untrained model, (down, right)."""
    move: Place = Field(default=[0.0, 0.0])
    """The step between places of an untrained model, if places are relative."""
    policy: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """The weight of the gradient of the places (λ of Ba et al. 2015); 1: the gradient of the bound."""
    most_symbols: Annotated[int, Field(ge=1, le=10_000)] = 20
    """The largest number of symbols of an image."""


class CanvasSpecification(specification.Table):
    """The table `[canvas]`: the glimpses, strokes and windows of DRAW."""

    glimpses: Glimpses = 64
    """The number of glimpses and of strokes, T."""
    d_latent: specification.Size = 100
    """The size of the latent vector of a stroke."""
    attention: bool = True
    """Whether a step reads and writes a window of the image instead of the complete image."""
    read: specification.Size = 2
    """The side of the window that is read, in filters."""
    write: specification.Size = 5
    """The side of the window that is written, in filters."""
    colors: Annotated[int, Field(ge=1, le=1000)] = 1
    """The number of values of a pixel: 1 for gray images, 3 for colored images."""


Column = Annotated[str, Field(min_length=1)]


class FramesData(DividedData):
    """The table `[data]` of a task that reads frames."""

    series: Column = "series"
    """The column of a table with the name of the series. A table without this column is one series."""
    labels: Column = "label"
    """The column of a table with the label."""
    time: Column = "time"
    """The column of a table with the time of a frame, by which the rows of a series are sorted; or two columns with a
    comma between their names, of dates and of clock times.
    """
    gaps: Literal["refuse", "split", "ignore"] = "refuse"
    """refuse: a gap in time is an error; split: a new series begins after a gap; ignore: times only sort the rows."""
    rows: Literal["frames", "series"] = "frames"
    """The meaning of a row of a table. For series, `labels` is the name of the column, or its number from 1."""
    features: list[Column] = Field(default_factory=list)
    """The columns of a table that are features; empty: all except the columns of series, labels, times and groups."""
    pattern: str = ""
    """The position of the label in file names, such as `{label}_{}_{}.wav`; empty: labels are in the files, in a table
    of paths, or are the names of folders.
    """
    separator: str = ""
    """The character between several labels; empty: a series has one label."""
    missing: Literal["refuse", "mean"] = "refuse"
    """refuse: a missing value is an error; mean: a missing value is replaced by the mean of the feature."""


class FramesTrain(TrainRecipe):
    """The table `[train]` of a task that reads series of frames."""

    batch_size: Rows = 32
    """The largest number of series in a batch."""
    batch_tokens: Rows = 20_000
    """The largest number of frames in a batch, unless a single series is longer."""


class FramesRecipe(Recipe):
    """The base of recipes that read series of frames."""

    most_frames: ClassVar[int] = 100_000
    """The largest number of frames of a series, so that memory stays at about a gigabyte."""

    data: FramesData = FramesData()
    features: FrameFeatureSpecification = FrameFeatureSpecification()
    encoder: specification.EncoderSpecification
    directions: specification.Directions = specification.Directions()
    train: FramesTrain

    def reading(self) -> "SeriesOptions":
        """Return the options for reading files as series."""
        from ensue.extensions.frames.data.series import LogMel, SeriesOptions  # noqa: PLC0415  # numpy is slow to import

        sound = LogMel(*(getattr(self.features, name) for name in LogMel._fields))
        keys = ("missing", "series", "labels", "time", "pattern", "encoding", "group", "rows", "gaps")
        options = {key: getattr(self.data, key) for key in keys}
        return SeriesOptions(sound, features=tuple(self.data.features), **options)


class FrameClassificationRecipe(FramesRecipe):
    """The recipe of a classifier of frames."""

    what: ClassVar[str] = "classifier of frames"
    reads: ClassVar[str] = "series of real vectors with labels"
    begins: ClassVar[bool] = True

    task: Literal["frame-classification"] = "frame-classification"
    head: PoolingHeadSpecification = PoolingHeadSpecification()


class FrameLabelingRecipe(FramesRecipe):
    """The recipe of a tagger of frames."""

    what: ClassVar[str] = "tagger of frames"
    reads: ClassVar[str] = "series of real vectors with a label for each vector"
    begins: ClassVar[bool] = True

    task: Literal["frame-labeling"] = "frame-labeling"
    head: PathHeadSpecification = PathHeadSpecification()


class FramePredictionTrain(FramesTrain):
    """The table `[train]` of a frame predictor."""

    longest: Rows = 1_000
    """The largest number of frames of a series in training. Longer series are split, but not for scores."""


class OneWayRecipe(FramesRecipe):
    """The recipe of a model that reads from left to right."""

    directions: specification.Directions = specification.ONE_WAY

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.directions.bidirectional:
            yield f"has directions.bidirectional, but a {self.what} reads from left to right"


class FramePredictionRecipe(OneWayRecipe):
    """The recipe of a frame predictor."""

    what: ClassVar[str] = "model of frames"
    reads: ClassVar[str] = "series of real vectors"

    task: Literal["frame-prediction"] = "frame-prediction"
    latent: LatentSpecification = LatentSpecification()
    head: MixtureHeadSpecification = MixtureHeadSpecification()
    train: FramePredictionTrain

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.latent.kind == "vrnn" and not isinstance(self.encoder, specification.RecurrentEncoder):
            yield f'has latent.kind "vrnn", which needs a recurrent encoder, not {self.encoder.kind}'


PREDICTION = TaskEntry(
    recipe=FramePredictionRecipe, pipeline_tag="time-series-forecasting",
    parts="ensue.extensions.frames.frame_prediction.model:FramePredictorParts",
    job="ensue.extensions.frames.frame_prediction.model:FramePredictionJob",
    pipeline="ensue.extensions.frames.frame_prediction.pipeline:FramePredictionPipeline",
    commands=("generate", "score", "predict", "evaluate", "inspect"), judged_by=("nats_per_frame",),
    files=("frames.json",),
)  # fmt: skip


class CaptionData(FramesData):
    """The table `[data]` of a captioner."""

    labels: Column = "caption"
    """The column of a table of paths with the caption. A path in several rows has several captions."""
    separator: str = ""
    """The character between several captions of an image; empty: an image has one caption."""


class CaptionTrain(FramesTrain):
    """The table `[train]` of a captioner."""

    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """The number of validation images whose captions are shown at each validation."""


class CaptioningRecipe(FramesRecipe):
    """The recipe of a captioner."""

    what: ClassVar[str] = "captioner"
    reads: ClassVar[str] = "images with captions"

    task: Literal["captioning"] = "captioning"
    data: CaptionData = CaptionData()
    tokenizer: TokenizerRecipe = TokenizerRecipe(kind="words")
    grid: GridSpecification = GridSpecification()
    encoder: specification.EncoderSpecification = specification.NoEncoder(kind="none")
    tokens: specification.PairTokens = specification.PairTokens()
    decoder: specification.EncoderSpecification
    attention: CaptionAttention = CaptionAttention()
    head: specification.TextHead = specification.TextHead()
    search: SearchTable = SearchTable()
    train: CaptionTrain

    @property
    def reads_images(self) -> bool:
        """Whether a series is an image, which is converted to a grid."""
        return self.grid.kind != "none"

    def describe(self) -> str:
        """Return a description such as `grid 16-32-64-128 → lstm 1×256`."""
        grid = [f"grid {'-'.join(map(str, self.grid.channels))}"] if self.reads_images else []
        layers = [self.decoder] if self.encoder.kind == "none" else [self.encoder, self.decoder]
        return " → ".join([*grid, *map(specification.describe_encoder, layers)])

    @property
    def layers(self) -> Any:
        return self.decoder


CAPTIONING = TaskEntry(
    recipe=CaptioningRecipe, pipeline_tag="image-to-text",
    parts="ensue.extensions.frames.captioning.model:CaptionerParts",
    job="ensue.extensions.frames.captioning.pipeline:CaptioningJob",
    pipeline="ensue.extensions.frames.captioning.pipeline:CaptioningPipeline",
    commands=("predict", "evaluate", "inspect", "score"), judged_by=("nats_per_token",),
    files=("frames.json", "tokenizer.json"),
)  # fmt: skip


class DrawingData(DividedData):
    """The table `[data]` of a painter."""

    binarize: Literal["anew", "once", "threshold", "none"] = "anew"
    """The conversion of pixels to 0 or 1. anew: random, with the value as the probability of 1, in each training step,
    and once for validation and test; once: random, but drawn once in training too (Larochelle & Murray 2011);
    threshold: 1 for values of at least 0.5; none: no conversion, the value is the probability of 1.
    """


class DrawingTrain(TrainRecipe):
    """The table `[train]` of a painter."""

    batch_size: Rows = 100
    """The number of images in a batch."""


class DrawingRecipe(Recipe):
    """The recipe of a painter."""

    what: ClassVar[str] = "painter"
    reads: ClassVar[str] = "images"

    task: Literal["drawing"] = "drawing"
    data: DrawingData = DrawingData()
    canvas: CanvasSpecification = CanvasSpecification()
    encoder: specification.CellsSpecification
    decoder: specification.CellsSpecification
    train: DrawingTrain

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for name in ("encoder", "decoder"):
            cells = getattr(self, name)
            if cells.dropout_kind == "variational":
                yield f'has {name}.dropout_kind "variational", unsupported in cells run step by step'
            if getattr(cells, "dropout_recurrent", 0.0):
                yield f"has {name}.dropout_recurrent, unsupported in cells run step by step"

    def describe(self) -> str:
        canvas = self.canvas
        windows = f"windows of {canvas.read} and {canvas.write}" if canvas.attention else "no attention"
        layers = f"{specification.describe_encoder(self.encoder)} and {specification.describe_encoder(self.decoder)}"
        return f"{layers}, {canvas.glimpses} glimpses, {windows}"


DRAWING = TaskEntry(
    recipe=DrawingRecipe, pipeline_tag="unconditional-image-generation",
    parts="ensue.extensions.frames.drawing.model:DrawingParts", job="ensue.extensions.frames.drawing.model:DrawingJob",
    pipeline="ensue.extensions.frames.drawing.pipeline:DrawingPipeline", commands=("generate", "evaluate", "inspect"),
    judged_by=("nats_per_image",), files=("image.json",),
)  # fmt: skip


class GlimpsesRecipe(OneWayRecipe):
    """The recipe of a model that reads images by glimpses. The table `[encoder]` describes both recurrent layers."""

    what: ClassVar[str] = "reader of images in glimpses"
    reads: ClassVar[str] = "images with sequences of symbols"

    task: Literal["glimpses"] = "glimpses"
    glimpses: GlimpseSpecification = GlimpseSpecification()

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.encoder.kind == "none":
            yield f'has encoder.kind "none", but a {self.what} needs recurrent layers'

    def describe(self) -> str:
        table, encoder = self.glimpses, specification.describe_encoder(self.encoder)
        return f"{table.each} glimpses of {table.scales}×{table.size}×{table.size}, {encoder}"


GLIMPSES = TaskEntry(
    recipe=GlimpsesRecipe, pipeline_tag="image-classification",
    parts="ensue.extensions.frames.glimpses.model:GlimpseParts",
    job="ensue.extensions.frames.glimpses.model:GlimpsesJob",
    pipeline="ensue.extensions.frames.glimpses.pipeline:GlimpsesPipeline", commands=("predict", "evaluate", "inspect"),
    judged_by=("exact_match",), files=("frames.json", "labels.json"),
)  # fmt: skip


CLASSIFICATION = TaskEntry(
    recipe=FrameClassificationRecipe, parts="ensue.extensions.frames.classification:FrameClassifierParts",
    job="ensue.extensions.frames.classification:FrameClassificationJob",
    pipeline="ensue.extensions.frames.classification:FrameClassificationPipeline",
    commands=("predict", "evaluate", "inspect"), judged_by=("accuracy", "micro_f1"),
    files=("frames.json", "labels.json", "confusion.png"),
)  # fmt: skip


LABELING = TaskEntry(
    recipe=FrameLabelingRecipe, parts="ensue.extensions.frames.labeling:FrameTaggerParts",
    job="ensue.extensions.frames.labeling:FrameLabelingJob",
    pipeline="ensue.extensions.frames.labeling:FrameLabelingPipeline", commands=("predict", "evaluate", "inspect"),
    judged_by=("f1", "accuracy"), files=("frames.json", "labels.json"),
)  # fmt: skip
