"""The tables and recipes of the tasks that read frames, and the entries of these tasks. It needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import (
    ONE_WAY,
    Attention,
    CellsSpecification,
    Directions,
    EncoderSpecification,
    Few,
    NoEncoder,
    PairTokens,
    RecurrentEncoder,
    Share,
    Size,
    Table,
    TextHead,
    describe_encoder,
)
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


class FrameFeatureSpecification(Table):
    """The features of a frame, and how sounds become frames."""

    normalize: Literal["training", "none"] = "training"
    """training: each feature has mean 0 and deviation 1 in the training data; none: as it is."""
    noise: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """The deviation of the normal noise that is added to normalized features in training."""
    dropout: Share = 0.0
    """Dropout on the features."""
    window: Annotated[float, Field(ge=1e-4, le=10)] = 0.025
    """For sounds: the length of a frame in seconds."""
    step: Annotated[float, Field(ge=1e-4, le=10)] = 0.010
    """For sounds: seconds from the start of a frame to the start of the next."""
    bands: Annotated[int, Field(ge=1, le=1000)] = 40
    """For sounds: the number of bands of frequency, evenly spaced in mel. The logarithms of their energies are the
    features.
    """
    lowest: Annotated[float, Field(ge=0, le=1_000_000)] = 20.0
    """For sounds: the beginning of the lowest band, in hertz."""
    highest: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """For sounds: the end of the highest band, in hertz; 0: half of the sampling rate."""
    floor: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """For sounds: the least energy of a band; samples are from -1 to 1."""
    top_db: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds: features are relative to the largest one of the recording, and none is more than so many decibels
    below it. So it does not matter how loud a recording is. 0: they are as they are.
    """
    shift: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds: in training the bands of a recording change their places by up to so many, as they do with the length
    of the vocal tract (Jaitly & Hinton 2013).
    """
    stretch: Annotated[float, Field(ge=0, le=1)] = 0.0
    """For sounds: the logarithm of the largest factor by which these places are stretched, too."""
    filter: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """For sounds: in training a smooth curve over the bands, of this deviation, is added to all frames of a recording,
    as rooms and microphones do (Nam et al. 2022).
    """


class MixtureHeadSpecification(Table):
    """The head of a model of the next frame."""

    components: Annotated[int, Field(ge=1, le=1000)] = 1
    """Normal distributions in the mixture; 1: a Gaussian."""
    least_deviation: Annotated[float, Field(gt=0, le=1)] = 0.01
    """The least deviation of a normalized feature. Without it, the density of a constant feature has no bound."""


class LatentSpecification(Table):
    """The latent variables of a model of the next frame."""

    kind: Literal["none", "storn", "vrnn"] = "none"
    """storn: the latent variables are independent, from N(0, 1) (Bayer & Osendorfer 2014); vrnn: their prior depends on
    the frames before (Chung et al. 2015).
    """
    size: Size = 32
    """Latent variables of a frame."""
    d_hidden: Size = 128
    """Width of the hidden layers between frames, latent variables and recurrent layers (vrnn)."""
    looks_ahead: bool = False
    """Whether the layers that recognize the latent variables of a frame also read the frames behind it (storn)."""


class GridSpecification(Table):
    """The table `[grid]`: from an image to the vectors that the decoder looks at."""

    kind: Literal["convolutions", "none"] = "convolutions"
    """convolutions: a small network makes a grid of vectors; none: the vectors are the frames themselves, such as a
    single vector, or the outputs of another network for the places of an image.
    """
    colors: Annotated[int, Field(ge=1, le=1_000)] = 1
    """The numbers of a pixel, which stand side by side in a row: 3 for red, green and blue."""
    channels: list[Size] = Field(default=[16, 32, 64, 96], min_length=1, max_length=100)
    """The number of features of each convolution of 3 × 3; the last number is that of a place."""
    halvings: Few = 4
    """The number of convolutions, from the first on, with a maximum over 2 × 2 pixels behind them."""
    dropout: Share = 0.0
    """Dropout on the vectors of the places."""


class CaptionAttention(Attention):
    """The table `[attention]` of a model that writes captions."""

    kind: Literal["scaled-dot", "dot", "bilinear", "additive", "none"] = "additive"
    before: bool = True
    """Whether a recurrent decoder looks at the source before its step, with the state that it has (Xu et al. 2015)."""
    gate: bool = True
    """Whether the state decides how much of what it sees enters the step: β of Xu et al."""
    doubly_stochastic: Weight = 0.01
    """λ in λ Σ_i (1 − Σ_t α_ti)², which makes the decoder look at each place about once; 0: none."""
    hard: bool = False
    """Whether one place is drawn in each step, in place of the mean."""
    expected: Share = 0.5
    """For hard attention: the share of steps in which the mean takes the place of the draw."""
    entropy: Weight = 0.01
    """For hard attention: the weight of the entropy of α, which keeps the attention from deciding too early."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.hard and not (self.before and self.kind == "additive"):
            raise ValueError('attention.hard needs attention.kind = "additive" and attention.before = true')
        if self.before and self.feeding:
            raise ValueError("attention.before and attention.feeding are two ways of one thing; expected one of them")
        return self


class GlimpseSpecification(Table):
    """The table `[glimpses]`: what is seen at once, and how the next place is found. Places are measured from the
    middle of the image, down and to the right, in halves of its longer side.
    """

    colors: Number = 1
    """Numbers of a pixel, side by side in a frame: 1 for gray, 3 for colors."""
    size: Side = 16
    """Pixels of a side of a patch."""
    scales: Annotated[int, Field(ge=1, le=10)] = 2
    """Patches of a glimpse: each shows twice as much as the one before, and has as many pixels."""
    each: Number = 2
    """Glimpses for each symbol."""
    convolutions: list[Size] = Field(default=[16, 32])
    """Channels of the convolutions that read a glimpse, one after another; each halves it."""
    view: Side = 4
    """How many times smaller the coarse view of the whole image is, from which the first place follows."""
    view_convolutions: list[Size] = Field(default=[16])
    """Channels of the convolutions that read the coarse view."""
    deviation: Annotated[float, Field(gt=0, le=2)] = 0.06
    """The deviation σ of a place that is drawn in training; prediction takes the mean."""
    samples: Number = 1
    """Ways through each image in a training step. With several, the score of one is compared with the others'."""
    relative: bool = True
    """Whether a place is found as a step from the one before, or by itself."""
    start: Place = Field(default=[0.0, 0.0])
    """The place where an untrained model begins to read, (down, right)."""
    move: Place = Field(default=[0.0, 0.0])
    """The step of an untrained model from place to place, if places are relative."""
    policy: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """How much the gradient of the places counts (λ of Ba et al. 2015); 1: it is that of the bound."""
    most_symbols: Annotated[int, Field(ge=1, le=10_000)] = 20
    """The most symbols of an image."""


class CanvasSpecification(Table):
    """The table `[canvas]`: how an image is painted."""

    glimpses: Glimpses = 64
    """The number of glimpses T, and of strokes."""
    d_latent: Size = 100
    """Features of the latent vector of a stroke."""
    attention: bool = True
    """Whether the image is read and written in windows, which the decoder places; if not, as a whole."""
    read: Size = 2
    """The side of the window that is read, in filters."""
    write: Size = 5
    """The side of the window that is written, in filters."""
    colors: Annotated[int, Field(ge=1, le=1000)] = 1
    """The colors of a pixel: 1 for gray images, 3 for colored ones."""


Column = Annotated[str, Field(min_length=1)]


class FramesData(DividedData):
    """The table `[data]` of a task that reads frames."""

    series: Column = "series"
    """The column of a table with the name of the series; without it a table is one series."""
    labels: Column = "label"
    """The column of a table with the label."""
    time: Column = "time"
    """The column of a table with the time of a frame; it is no feature, and a gap in it is a mistake."""
    pattern: str = ""
    """The place of the label in the name of a file, such as `{label}_{}_{}.wav`; empty: labels are in the files, in a
    table of paths, or are the names of folders.
    """
    separator: str = ""
    """The character between several labels; empty: a series has one label."""
    missing: Literal["refuse", "mean"] = "refuse"
    """Missing values: refuse: they are a mistake; mean: they are read as the mean of the feature."""


class FramesTrain(TrainRecipe):
    """The table `[train]` of a task that reads series of frames."""

    batch_size: Rows = 32
    """At most this many series go into a batch."""
    batch_tokens: Rows = 20_000
    """At most this many frames go into a batch, unless one series alone is longer."""


class FramesRecipe(Recipe):
    """A recipe of a task that reads series of frames. The limit on their length keeps memory at about a gigabyte."""

    most_frames: ClassVar[int] = 100_000

    data: FramesData = FramesData()
    features: FrameFeatureSpecification = FrameFeatureSpecification()
    encoder: EncoderSpecification
    directions: Directions = Directions()
    train: FramesTrain

    def reading(self) -> SeriesOptions:
        """Return how files become series."""
        from ensue.extensions.frames.data.series import LogMel, SeriesOptions  # noqa: PLC0415  # numpy, which lists do without

        data, features = self.data, self.features
        sound = LogMel(*(getattr(features, name) for name in LogMel._fields))
        return SeriesOptions(
            sound, data.missing, data.series, data.labels, data.time, data.pattern, data.encoding, data.group
        )


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
    reads: ClassVar[str] = "series of real vectors with a label for each"
    begins: ClassVar[bool] = True

    task: Literal["frame-labeling"] = "frame-labeling"
    head: PathHeadSpecification = PathHeadSpecification()


class FramePredictionTrain(FramesTrain):
    """The table `[train]` of a model of the next frame."""

    longest: Rows = 1_000
    """Longer series are cut for training, into pieces of at most this many frames. They are scored whole."""


class OneWayRecipe(FramesRecipe):
    """The recipe of a model that reads from left to right."""

    directions: Directions = ONE_WAY

    @model_validator(mode="after")
    def _reads_one_way(self) -> Self:
        if self.directions.bidirectional:
            raise ValueError(f"has directions.bidirectional, but a {self.what} reads from left to right")
        return self


class FramePredictionRecipe(OneWayRecipe):
    """The recipe of a model of the next frame."""

    what: ClassVar[str] = "model of frames"
    reads: ClassVar[str] = "series of real vectors"

    task: Literal["frame-prediction"] = "frame-prediction"
    latent: LatentSpecification = LatentSpecification()
    head: MixtureHeadSpecification = MixtureHeadSpecification()
    train: FramePredictionTrain

    @model_validator(mode="after")
    def _fits_latent(self) -> Self:
        if self.latent.kind == "vrnn" and not isinstance(self.encoder, RecurrentEncoder):
            raise ValueError(f'has latent.kind "vrnn", which needs a recurrent encoder, not {self.encoder.kind}')
        return self


PREDICTION = TaskEntry(
    recipe=FramePredictionRecipe,
    pipeline_tag="time-series-forecasting",
    parts="ensue.extensions.frames.frame_prediction.model:FramePredictorParts",
    job="ensue.extensions.frames.frame_prediction.model:FramePredictionJob",
    pipeline="ensue.extensions.frames.frame_prediction.pipeline:FramePredictionPipeline",
    commands=("generate", "score", "predict", "evaluate", "inspect"),
    judged_by=("nats_per_frame",),
    files=("frames.json",),
)


class CaptionData(FramesData):
    """The table `[data]` of a model that writes captions."""

    labels: Column = "caption"
    """The column of a table of paths with the caption. A path that comes several times has several captions."""
    separator: str = ""
    """The character between several captions of one image; empty: it has one."""


class CaptionTrain(FramesTrain):
    """The table `[train]` of a model that writes captions."""

    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Validation images whose captions are shown at each validation."""


class CaptioningRecipe(FramesRecipe):
    """The recipe of a model that writes captions."""

    what: ClassVar[str] = "captioner"
    reads: ClassVar[str] = "images with captions"

    task: Literal["captioning"] = "captioning"
    data: CaptionData = CaptionData()
    tokenizer: TokenizerRecipe = TokenizerRecipe(kind="words")
    grid: GridSpecification = GridSpecification()
    encoder: EncoderSpecification = NoEncoder(kind="none")
    tokens: PairTokens = PairTokens()
    decoder: EncoderSpecification
    attention: CaptionAttention = CaptionAttention()
    head: TextHead = TextHead()
    search: SearchTable = SearchTable()
    train: CaptionTrain

    @property
    def reads_images(self) -> bool:
        """Whether a series is an image, which becomes a grid."""
        return self.grid.kind != "none"

    def describe(self) -> str:
        """Return a description such as `grid 16-32-64-128 → lstm 1×256`."""
        grid = [f"grid {'-'.join(map(str, self.grid.channels))}"] if self.reads_images else []
        encoder = [] if isinstance(self.encoder, NoEncoder) else [describe_encoder(self.encoder)]
        return " → ".join([*grid, *encoder, describe_encoder(self.decoder)])

    @property
    def layers(self) -> Any:
        return self.decoder


CAPTIONING = TaskEntry(
    recipe=CaptioningRecipe,
    pipeline_tag="image-to-text",
    parts="ensue.extensions.frames.captioning.model:CaptionerParts",
    job="ensue.extensions.frames.captioning.job:CaptioningJob",
    pipeline="ensue.extensions.frames.captioning.pipeline:CaptioningPipeline",
    commands=("predict", "evaluate", "inspect", "score"),
    judged_by=("nats_per_token",),
    files=("frames.json", "tokenizer.json"),
)


class DrawingData(DividedData):
    """The table `[data]` of a model that paints."""

    binarize: Literal["anew", "once", "threshold", "none"] = "anew"
    """How a pixel becomes 0 or 1. anew: it is 1 with the probability of its value, drawn in each step of training, and
    once for validation and test; once: drawn once in training too (Larochelle & Murray 2011); threshold: 1 from 0.5 on;
    none: its value is read as a probability.
    """


class DrawingTrain(TrainRecipe):
    """The table `[train]` of a model that paints."""

    batch_size: Rows = 100
    """Images in a batch."""


class DrawingRecipe(Recipe):
    """The recipe of a model that paints."""

    what: ClassVar[str] = "painter"
    reads: ClassVar[str] = "images"

    task: Literal["drawing"] = "drawing"
    data: DrawingData = DrawingData()
    canvas: CanvasSpecification = CanvasSpecification()
    encoder: CellsSpecification
    decoder: CellsSpecification
    train: DrawingTrain

    @model_validator(mode="after")
    def _steps(self) -> Self:
        """Cells are called step by step, in which a mask for a whole sequence does not exist."""
        for name in ("encoder", "decoder"):
            cells = getattr(self, name)
            if cells.dropout_kind == "variational":
                raise ValueError(f'has {name}.dropout_kind "variational", which cells run step by step have not')
            if getattr(cells, "dropout_recurrent", 0.0):
                raise ValueError(f"has {name}.dropout_recurrent, which cells run step by step have not")
        return self

    def describe(self) -> str:
        canvas = self.canvas
        windows = f"windows of {canvas.read} and {canvas.write}" if canvas.attention else "no attention"
        layers = f"{describe_encoder(self.encoder)} and {describe_encoder(self.decoder)}"
        return f"{layers}, {canvas.glimpses} glimpses, {windows}"


DRAWING = TaskEntry(
    recipe=DrawingRecipe,
    pipeline_tag="unconditional-image-generation",
    parts="ensue.extensions.frames.drawing.model:DrawingParts",
    job="ensue.extensions.frames.drawing.model:DrawingJob",
    pipeline="ensue.extensions.frames.drawing.pipeline:DrawingPipeline",
    commands=("generate", "evaluate", "inspect"),
    judged_by=("nats_per_image",),
    files=("image.json",),
)


class GlimpsesRecipe(OneWayRecipe):
    """The recipe of a model that reads images in glimpses. Both of its recurrent layers are `[encoder]`s."""

    what: ClassVar[str] = "reader of images in glimpses"
    reads: ClassVar[str] = "images with sequences of symbols"

    task: Literal["glimpses"] = "glimpses"
    glimpses: GlimpseSpecification = GlimpseSpecification()

    @model_validator(mode="after")
    def _has_a_state(self) -> Self:
        if self.encoder.kind == "none":
            raise ValueError(f'has encoder.kind "none", but a {self.what} needs layers that remember')
        return self

    def describe(self) -> str:
        table = self.glimpses
        return f"{table.each} glimpses of {table.scales}×{table.size}×{table.size}, {describe_encoder(self.encoder)}"


GLIMPSES = TaskEntry(
    recipe=GlimpsesRecipe,
    pipeline_tag="image-classification",
    parts="ensue.extensions.frames.glimpses.model:GlimpseParts",
    job="ensue.extensions.frames.glimpses.model:GlimpsesJob",
    pipeline="ensue.extensions.frames.glimpses.pipeline:GlimpsesPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("exact_match",),
    files=("frames.json", "labels.json"),
)


CLASSIFICATION = TaskEntry(
    recipe=FrameClassificationRecipe,
    parts="ensue.extensions.frames.classification:FrameClassifierParts",
    job="ensue.extensions.frames.classification:FrameClassificationJob",
    pipeline="ensue.extensions.frames.classification:FrameClassificationPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("accuracy", "micro_f1"),
    files=("frames.json", "labels.json", "confusion.png"),
)


LABELING = TaskEntry(
    recipe=FrameLabelingRecipe,
    parts="ensue.extensions.frames.labeling:FrameTaggerParts",
    job="ensue.extensions.frames.labeling:FrameLabelingJob",
    pipeline="ensue.extensions.frames.labeling:FrameLabelingPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("f1", "accuracy"),
    files=("frames.json", "labels.json"),
)
