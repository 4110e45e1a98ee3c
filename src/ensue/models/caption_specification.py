"""The tables `[grid]` and `[attention]` of recipes of captions. `captioner.py` makes modules of them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ensue.models.feature_specification import Few, Share, Size
from ensue.models.specification import Attention, Specification

Weight = Annotated[float, Field(ge=0, le=1e6)]


class GridSpecification(Specification):
    """The table `[grid]`: from an image to the vectors that the decoder looks at."""

    kind: Literal["convolutions", "none"] = "convolutions"
    """convolutions: a small network makes a grid of vectors; none: the vectors are the frames themselves, such as one
    vector, or the places of an image as another network has them.
    """
    colors: Annotated[int, Field(ge=1, le=1_000)] = 1
    """The numbers of a pixel, which stand side by side in a row: 3 for red, green and blue."""
    channels: Annotated[list[Size], Field(min_length=1, max_length=100)] = Field(
        default_factory=lambda: [16, 32, 64, 96]
    )
    """The features of each convolution of 3 × 3; the last ones are those of a place."""
    halvings: Few = 4
    """So many of the first convolutions are followed by a maximum over 2 × 2 pixels."""
    dropout: Share = 0.0
    """Dropout on the vectors of the places."""


class LookingSpecification(Attention):
    """The table `[attention]` of a model that writes captions."""

    kind: Literal["scaled-dot", "dot", "bilinear", "additive", "none"] = "additive"
    before: bool = True
    """Whether a recurrent decoder looks at the source before its step, with the state that it has (Xu et al. 2015)."""
    gate: bool = True
    """Whether the state decides how much of what it sees enters the step: β of Xu et al."""
    doubly_stochastic: Weight = 0.01
    """λ in λ Σ_i (1 − Σ_t α_ti)², by which each place is looked at about once; 0: none."""
    hard: bool = False
    """Whether one place is drawn in each step, in place of the mean."""
    expected: Share = 0.5
    """Of hard attention: the share of steps in which the mean stands in place of the draw."""
    entropy: Weight = 0.01
    """Of hard attention: the weight of the entropy of α, which keeps it from deciding too early."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.hard and not (self.before and self.kind == "additive"):
            raise ValueError('attention.hard needs attention.kind = "additive" and attention.before = true')
        if self.before and self.feeding:
            raise ValueError("attention.before and attention.feeding are two ways of one thing; expected one of them")
        return self
