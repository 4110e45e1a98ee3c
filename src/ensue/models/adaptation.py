"""The settings of a language model that adapts to what it reads. `adaptive_model.py` applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

from ensue.arguments import Option, check_settings


@dataclass(frozen=True)
class Adaptation:
    """A neural cache (Grave et al. 2017) and dynamic evaluation (Krause et al. 2018), both off by default.

    - `cache` is the number of tokens whose successors are remembered; 0 remembers none.
    - `cache_weight` λ is the share of the cache in the mixture; 0 changes nothing.
    - `cache_flatness` θ multiplies the products of states: the larger, the fewer tokens count.
    - `dynamic` η is the learning rate of dynamic evaluation; 0 leaves the weights as they are.
    - `dynamic_decay` λ is the share of its way back that a weight goes after each segment.
    - `dynamic_segment` is the number of tokens after which the weights change.

    Raises EnsueError for a value out of range.
    """

    cache: Annotated[
        int,
        Option(0, 1 << 17, "Of recurrent language models: remember N tokens in a neural cache."),
    ] = 0
    cache_weight: Annotated[float, Option(0, 0.99, "The share of the neural cache in the mixture.")] = 0.15
    cache_flatness: Annotated[float, Option(0, 1e6, "The larger, the fewer tokens of the cache count.")] = 0.25
    dynamic: Annotated[float, Option(0, 1e6, "Learn from what is read, at this rate (dynamic evaluation).")] = 0.0
    dynamic_decay: Annotated[float, Option(0, 1, "After each segment, weights go this share of their way back.")] = 0.0
    dynamic_segment: Annotated[int, Option(1, 1 << 13, "The tokens after which weights change.")] = 32

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def is_none(self) -> bool:
        """Whether nothing is remembered or learned."""
        return not self.remembers and not self.dynamic

    @property
    def remembers(self) -> bool:
        """Whether there is a cache that changes anything."""
        return self.cache > 0 and self.cache_weight > 0


class AdaptationOptions(TypedDict, total=False):
    """The arguments of `Adaptation`, for signatures."""

    cache: int
    cache_weight: float
    cache_flatness: float
    dynamic: float
    dynamic_decay: float
    dynamic_segment: int
