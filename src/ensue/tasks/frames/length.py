"""The length of the longest series that a model reads."""

from __future__ import annotations

from ensue.data.frames.series import Series
from ensue.tasks.frames.recipe import FramesRecipe
from ensue.tasks.length import check_read, most_read


def check_frames(series: Series, recipe: FramesRecipe) -> None:
    """Raises DataError, with its file, if a series has more frames than a model of this recipe reads."""
    path, line = series.place
    check_read(
        "a series of frames", len(series.frames), most_read(recipe.encoder, recipe.most_frames), recipe.encoder,
        table="encoder", advice="cut it, or take longer steps", path=path, line=line or 0,
    )  # fmt: skip
