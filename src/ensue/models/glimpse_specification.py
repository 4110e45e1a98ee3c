"""The table `[glimpses]` of recipes for models that read images in glimpses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ensue.models.specification import Size, Specification

Side = Annotated[int, Field(ge=1, le=10_000)]
Few = Annotated[int, Field(ge=1, le=100)]
Place = Annotated[list[Annotated[float, Field(ge=-2, le=2)]], Field(min_length=2, max_length=2)]


class GlimpseSpecification(Specification):
    """The table `[glimpses]`: what is seen at once, and how the next place is found. Places are measured from the
    middle of the image, down and to the right, in halves of its longer side.
    """

    colors: Few = 1
    """Numbers of a pixel, side by side in a frame: 1 for gray, 3 for colors."""
    size: Side = 16
    """Pixels of a side of a patch."""
    scales: Annotated[int, Field(ge=1, le=10)] = 2
    """Patches of a glimpse: each shows twice as much as the one before, and has as many pixels."""
    each: Few = 2
    """Glimpses for each symbol."""
    convolutions: list[Size] = Field(default=[16, 32])
    """Channels of the convolutions that read a glimpse, one after another; each halves it."""
    view: Side = 4
    """How many times smaller the coarse view of the whole image is, from which the first place follows."""
    view_convolutions: list[Size] = Field(default=[16])
    """Channels of the convolutions that read the coarse view."""
    deviation: Annotated[float, Field(gt=0, le=2)] = 0.06
    """The deviation σ of a place that is drawn in training; the model at work takes the mean."""
    samples: Few = 1
    """Ways through each image in a training step. With several, what one earns is compared with what the others do."""
    relative: bool = True
    """Whether a place is found as a step from the one before, or by itself."""
    start: Place = Field(default=[0.0, 0.0])
    """Where reading begins before anything is learned, (down, right)."""
    move: Place = Field(default=[0.0, 0.0])
    """The step to each place before anything is learned, if places are relative."""
    policy: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """How much the gradient of the places counts (λ of Ba et al. 2015); 1: it is that of the bound."""
    most_symbols: Annotated[int, Field(ge=1, le=10_000)] = 20
    """The most symbols of an image."""
