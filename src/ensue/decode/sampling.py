"""The settings of sampling: temperature, filters, penalty. `next_token.py` applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, TypedDict

from ensue.arguments import Option, check_settings

MOST = 1e30
"""The largest temperature and penalty; float32 holds it."""
GREEDY_BELOW = 1e-6
"""A temperature below this counts as 0, since dividing by it would exceed float32."""


@dataclass(frozen=True)
class Sampling:
    """The choice of the next token. Raises EnsueError for a value out of range.

    - `temperature` divides the logits; 0 takes the most probable token (greedy).
    - `top_k` keeps the k most probable tokens (Fan et al. 2018).
    - `top_p` keeps the fewest most probable tokens whose probabilities reach p (Holtzman et al. 2020).
    - `min_p` keeps the tokens with at least p times the probability of the most probable one (Nguyen et al. 2024).
    - `repetition_penalty` θ makes tokens of the prompt and the output so far less probable: a positive logit is divided
      by θ, a negative one is multiplied. (Keskar et al. 2019 divide both, which favors tokens with negative logits.)
    """

    temperature: Annotated[
        float,
        Option(
            0,
            MOST,
            "Below 1 more cautious, above 1 more varied; 0 takes the most probable token.",
            expected="0 (greedy) or more",
            served=(0, 2),
            neutral=1.0,
        ),
    ] = 1.0
    top_k: Annotated[
        int | None, Option(1, math.inf, "Keep the K most probable tokens.", expected="1 or more", served=(1, math.inf))
    ] = None
    top_p: Annotated[
        float | None,
        Option(
            0,
            1,
            "Keep the most probable tokens that reach the probability P together.",
            expected="more than 0 and at most 1",
            is_above_least=True,
            served=(0, 1),
            neutral=1.0,
        ),
    ] = None
    min_p: Annotated[
        float | None,
        Option(0, 1, "Keep tokens at least P times as probable as the most probable one.", served=(0, 1)),
    ] = None
    repetition_penalty: Annotated[
        float,
        Option(
            0,
            MOST,
            "Above 1: make tokens that occurred before less probable.",
            expected="more than 0 (1 changes nothing)",
            is_above_least=True,
        ),
    ] = 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature < GREEDY_BELOW


class SamplingOptions(TypedDict, total=False):
    """The arguments of `Sampling`, for signatures."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
