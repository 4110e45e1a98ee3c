"""Settings of sampling (`generation.py`): temperature, filters, penalty."""

import math
from dataclasses import dataclass
from typing import Annotated, TypedDict

from ensue.errors import Option, check_settings

MAX_FACTOR = 1e30
"""The largest temperature and penalty, within the range of float32."""
MIN_TEMPERATURE = 1e-6
"""The minimum temperature of sampling. Below it decoding is greedy, since the division would overflow float32."""


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling.

    Attributes:
        temperature: The divisor of the logits; 0: greedy decoding.
        top_k: The number of most probable tokens to keep (Fan et al. 2018).
        top_p: The minimum total probability of the kept tokens. The smallest set of most probable tokens that reaches
            it is kept (nucleus sampling, Holtzman et al. 2020).
        min_p: The minimum probability of tokens, relative to the largest probability (Nguyen et al. 2024).
        repetition_penalty: The θ that makes tokens of prompt and output less probable: positive logits are divided by
            θ, and negative logits are multiplied by θ. (Keskar et al. 2019 divide all logits, which makes tokens with
            negative logits more probable.)

    Raises:
        EnsueError: A value is out of range.
    """

    temperature: Annotated[float, Option(
        0, MAX_FACTOR, "Below 1 more cautious, above 1 more varied; 0 takes the most probable token.",
        expected="0 (greedy) or more", in_api=(0, 2), no_effect_value=1.0,
    )] = 1.0  # fmt: skip
    top_k: Annotated[
        int | None, Option(1, math.inf, "Keep the K most probable tokens.", expected="1 or more", in_api=(1, math.inf))
    ] = None
    top_p: Annotated[float | None, Option(
        0, 1, "Keep the fewest tokens whose total probability reaches P.",
        expected="more than 0 and at most 1", excludes_minimum=True, in_api=(0, 1), no_effect_value=1.0,
    )] = None  # fmt: skip
    min_p: Annotated[
        float | None, Option(0, 1, "Keep tokens at least P times as probable as the most probable one.", in_api=(0, 1))
    ] = None
    repetition_penalty: Annotated[float, Option(
        0, MAX_FACTOR, "Above 1: make tokens that occurred before less probable.",
        expected="more than 0 (1 changes nothing)", excludes_minimum=True,
    )] = 1.0  # fmt: skip

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always chosen."""
        return self.temperature < MIN_TEMPERATURE


class SamplingOptions(TypedDict, total=False):
    """The arguments of `Sampling`, for signatures."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
