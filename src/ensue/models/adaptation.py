"""Settings of adaptive language models (`adaptive_model.py`): neural cache and dynamic evaluation."""

from dataclasses import dataclass
from typing import Annotated, TypedDict

from ensue.errors import Option, check_settings


@dataclass(frozen=True)
class Adaptation:
    """A neural cache (Grave et al. 2017) and dynamic evaluation (Krause et al. 2018), both off by default.

    Attributes:
        cache: The number of tokens in the neural cache; 0: no cache.
        cache_weight: The mixture weight λ of the cache, from 0 to 0.99.
        cache_flatness: The factor θ of the dot products; larger values concentrate the cache on fewer tokens.
        dynamic: The learning rate η of dynamic evaluation; 0: off.
        dynamic_decay: The decay μ towards the trained weights after each segment, from 0 to 1.
        dynamic_segment: The number of tokens between two updates of the weights.

    Raises:
        EnsueError: A value is out of range.
    """

    cache: Annotated[
        int, Option(0, 1 << 17, "The number of tokens in the neural cache of a recurrent language model.")
    ] = 0
    cache_weight: Annotated[float, Option(0, 0.99, "The mixture weight of the neural cache.")] = 0.15
    cache_flatness: Annotated[float, Option(0, 1e6, "Larger values concentrate the cache on fewer tokens.")] = 0.25
    dynamic: Annotated[float, Option(0, 1e6, "The learning rate of dynamic evaluation.")] = 0.0
    dynamic_decay: Annotated[float, Option(0, 1, "The decay towards the trained weights after each segment.")] = 0.0
    dynamic_segment: Annotated[int, Option(1, 1 << 13, "The number of tokens between two updates.")] = 32

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def has_cache(self) -> bool:
        """Whether the cache has a size and a weight."""
        return self.cache > 0 and self.cache_weight > 0


class AdaptationOptions(TypedDict, total=False):
    """The arguments of `Adaptation`, for signatures."""

    cache: int
    cache_weight: float
    cache_flatness: float
    dynamic: float
    dynamic_decay: float
    dynamic_segment: int
