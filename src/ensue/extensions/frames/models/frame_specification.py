"""Tables of a recipe that describe models of frames: sounds, series and images."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import Attention, Few, Share, Size, Table

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
