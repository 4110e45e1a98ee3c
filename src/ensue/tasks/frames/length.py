"""The longest series that a model reads, and the most that it generates."""

from __future__ import annotations

from ensue.data.frames.series import Series
from ensue.errors import EnsueError
from ensue.tasks.contract.length import check_read, most_read
from ensue.tasks.frames.recipe import FramesRecipe

MOST_GENERATED = 1 << 28
"""The most numbers that are generated at once, a gigabyte."""


def check_generated(numbers: int) -> None:
    """Raises EnsueError if these are more numbers than a model generates at once."""
    if numbers > MOST_GENERATED:
        raise EnsueError(f"{numbers:,} numbers in all; up to {MOST_GENERATED:,} are generated at once")


def check_frames(series: Series, recipe: FramesRecipe) -> None:
    """Raises DataError, with its file, if a series has more frames than a model of this recipe reads."""
    path, line = series.place
    check_read(
        "a series of frames", len(series.frames), most_read(recipe.encoder, recipe.most_frames), recipe.encoder,
        table="encoder", advice="cut it, or take longer steps", path=path, line=line or 0,
    )  # fmt: skip
